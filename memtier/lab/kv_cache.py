"""KV caches in torch: measured by storage, generated with and without, kept in pages, and fetched from three tiers.

The measured side of memtier.kv_cache. Seen with torch 2.13.0 and transformers 5.24.0 on a CPU; the models are small and
random, so what they say means nothing, but what they keep is the real thing.

Run as a file it is several processes that share one store, each answering the same prompts:

    python -m memtier.lab.kv_cache STORE_URL 3
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import secrets
import subprocess
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fsspec
import torch

from memtier import checks, kv_cache, models

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CACHES = ("dynamic", "dynamic, no config", "static", "fp8")
SMALL = {"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 172,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}


def random_model(config: Mapping | None = None, *, dtype: str = "fp32", seed: int = 0, experts: str | None = "eager"):
    """The causal language model transformers builds from a config.json's content, with random weights.

    experts: how a mixture of experts runs; "eager" takes every size, None leaves the choice to transformers.
    """
    checks.one_of("dtype", dtype, DTYPES)
    from transformers import AutoConfig, AutoModelForCausalLM  # seconds to import: only when a model is built

    settings = dict(SMALL if config is None else config)
    parsed = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(parsed, dtype=DTYPES[dtype], experts_implementation=experts).eval()


# Measuring transformers' own caches


@dataclass(frozen=True)
class Measured:
    """Bytes of a cache: of the tensors it shows, and of the storages behind them, each once."""

    shown: int
    storage: int


def measured(cache) -> Measured:
    """Bytes of a cache of transformers, found by walking through every tensor that its layers hold."""
    tensors = [tensor for layer in cache.layers for tensor in _tensors(vars(layer))]
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}
    return Measured(sum(each.numel() * each.element_size() for each in tensors), sum(storages.values()))


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def fill(model, *, batch: int = 1, sequence: int = 16, decode: int = 0, cache: str = "dynamic"):
    """A cache of transformers after one call with sequence − decode tokens and `decode` calls with one more each.

    cache: one of CACHES. A static one is made for exactly `sequence` tokens; "fp8" is QuantizedCache("fp8").
    """
    checks.whole("batch", batch)
    checks.whole("sequence", sequence)
    checks.whole("decode", decode, least=0, most=sequence - 1)
    checks.one_of("cache", cache, CACHES)
    from transformers import DynamicCache, QuantizedCache, StaticCache

    made = {"dynamic": lambda: DynamicCache(config=model.config), "dynamic, no config": DynamicCache,
            "static": lambda: StaticCache(config=model.config, max_cache_len=sequence),
            "fp8": lambda: QuantizedCache("fp8", model.config)}[cache]()
    ids = torch.zeros(batch, sequence, dtype=torch.long)
    with torch.no_grad():
        for piece in ids.split([sequence - decode] + [1] * decode, dim=1):
            model(input_ids=piece, cache=made, use_cache=True, logits_to_keep=1)
    return made


def full_size(config: Mapping, *, batch: int = 1, sequence: int = 8192, decode: int = 0, dtype: str = "bf16",
              cache: str = "dynamic") -> Measured:
    """Bytes of the cache of a model of any size, which is never in memory: torch only keeps account of its tensors.

    transformers takes torch's FakeTensors for tracing and would prepare a mask that no real run has; that is
    switched off here for the time of the call.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import masking_utils

    looked = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda *args, **kwargs: None
    try:
        with FakeTensorMode():
            model = random_model(config, dtype=dtype, experts=None)  # eager experts need real numbers to route by
            return measured(fill(model, batch=batch, sequence=sequence, decode=decode, cache=cache))
    finally:
        masking_utils.find_packed_sequence_indices = looked


# With and without


@dataclass(frozen=True)
class Generated:
    """What generating cost. computed: tokens that went through the model. kept: bytes of cache at the end."""

    tokens: tuple[int, ...]
    computed: int
    kept: int
    seconds: float


def generate(model, prompt: Sequence[int], *, new: int = 16, cached: bool = True) -> Generated:
    """Generate `new` tokens, always the likeliest next one. Without a cache each runs all tokens before it again."""
    checks.whole("new", new)
    if not prompt:
        raise ValueError(f"prompt is {prompt!r}; it must have a token")
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config) if cached else None
    tokens, computed, began = list(prompt), 0, time.perf_counter()
    with torch.no_grad():
        for _ in range(new):
            piece = tokens[cache.get_seq_length():] if cached else tokens
            answer = model(input_ids=torch.tensor([piece]), cache=cache, use_cache=cached)
            computed += len(piece)
            tokens.append(answer.logits[0, -1].argmax().item())
    kept = measured(cache).storage if cached else 0
    return Generated(tuple(tokens[len(prompt):]), computed, kept, time.perf_counter() - began)


# Blocks named by what is in them


def chain(tokens: Sequence[int], size: int, root: str = "") -> list[str]:
    """A name for each full block of `size` tokens: a hash of the block's tokens and of the name of the one before.

    Keys and values depend on all tokens before them, so a block may be used again only behind the same beginning; the
    chain makes sure of that. root: what else they depend on, such as the model.
    """
    names, before = [], root
    for start in range(0, len(tokens) - size + 1, size):
        text = json.dumps([before, [int(token) for token in tokens[start:start + size]]])
        before = hashlib.sha256(text.encode()).hexdigest()
        names.append(before)
    return names


class Pages:
    """A paged cache small enough to read: sequences are lists of blocks, and blocks may be in several lists.

    blocks: how many there are. size: tokens a block. shape: of what is kept for one token.
    A full block is findable by its name (`chain`), also after the last sequence that used it is gone, until its memory
    is needed: the block free for longest is taken first. copied, evicted: how often that happened.
    """

    def __init__(self, blocks: int, size: int, shape: tuple[int, ...] = (), dtype=torch.float32):
        checks.whole("blocks", blocks)
        self.size = checks.whole("size", size)
        self.memory = torch.zeros(blocks, size, *shape, dtype=dtype)
        self.uses = [0] * blocks  # how many sequences have the block in their list
        self.free = OrderedDict.fromkeys(range(blocks))  # free for longest first
        self.tables: dict[int, list[int]] = {}  # sequence → its blocks
        self.tokens: dict[int, list[int]] = {}  # sequence → its tokens
        self.named: dict[str, int] = {}  # name → full block
        self.names: dict[int, str] = {}  # full block → name
        self.copied = self.evicted = 0
        self._last = 0

    def start(self, tokens: Sequence[int] = ()) -> int:
        """A new sequence, with as many of the full blocks of `tokens` as are known; see `length` for how many."""
        self._last += 1
        table = self.tables[self._last] = []
        for name in chain(tokens, self.size):
            if name not in self.named:
                break
            table.append(self.named[name])
            self._use(table[-1])
        self.tokens[self._last] = list(tokens[:len(table) * self.size])
        return self._last

    def length(self, sequence: int) -> int:
        return len(self.tokens[sequence])

    def append(self, sequence: int, token: int, entry) -> None:
        """Add one token and what is kept for it. Raises MemoryError, with nothing changed, when no block is free."""
        table, tokens = self.tables[sequence], self.tokens[sequence]
        place = len(tokens) % self.size
        if place == 0:
            table.append(self._take())
        elif self.uses[table[-1]] > 1:  # somebody else's as well: copy on write
            mine = self._take()
            self.memory[mine, :place] = self.memory[table[-1], :place]
            self._drop(table[-1])
            table[-1] = mine
            self.copied += 1
        self.memory[table[-1], place] = entry
        tokens.append(token)
        if place + 1 == self.size:
            name = chain(tokens, self.size)[-1]
            if name not in self.named:
                self.named[name], self.names[table[-1]] = table[-1], name

    def fork(self, sequence: int) -> int:
        """A new sequence with the same tokens in the same blocks; nothing is copied until one of them is added to."""
        self._last += 1
        self.tables[self._last] = list(self.tables[sequence])
        self.tokens[self._last] = list(self.tokens[sequence])
        for block in self.tables[sequence]:
            self._use(block)
        return self._last

    def finish(self, sequence: int) -> None:
        """The sequence is done: its blocks are free where nobody else uses them."""
        for block in reversed(self.tables.pop(sequence)):  # the end of a prefix is free before its beginning
            self._drop(block)
        del self.tokens[sequence]

    def read(self, sequence: int) -> torch.Tensor:
        """What is kept for all tokens of the sequence, in order."""
        return self.memory[self.tables[sequence]].flatten(0, 1)[:self.length(sequence)]

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks in use."""
        return (len(self.uses) - len(self.free)) * self.memory[0].numel() * self.memory.element_size()

    def _take(self) -> int:
        if not self.free:
            raise MemoryError(f"all {len(self.uses)} blocks are in use")
        block, _ = self.free.popitem(last=False)
        self.uses[block] = 1
        if block in self.names:
            del self.named[self.names.pop(block)]
            self.evicted += 1
        return block

    def _use(self, block: int) -> None:
        self.free.pop(block, None)
        self.uses[block] += 1

    def _drop(self, block: int) -> None:
        self.uses[block] -= 1
        if self.uses[block] == 0:
            self.free[block] = None


# Three tiers. A block travels and rests as bytes: 4 to know it by, its checksum, its content.

MARK = b"KV1\n"
HEADER = len(MARK) + hashlib.sha256().digest_size  # bytes in front of each block's content


class Corrupted(Exception):
    """A stored block is not what was written: truncated, changed, or another's."""


def wrap(name: str, content: bytes) -> bytes:
    """A block as it is stored: mark, checksum over name and content, content."""
    return MARK + hashlib.sha256(name.encode() + content).digest() + content


def unwrap(name: str, stored: bytes) -> bytes:
    """The content of a stored block. Raises Corrupted where it is not whole, not itself or not this block."""
    content = stored[HEADER:]
    if stored != wrap(name, content):
        raise Corrupted(name)
    return content


class Memory:
    """Blocks in this process's memory, at most `limit` bytes; the least recently used are evicted."""

    name = "memory"

    def __init__(self, limit: float):
        self.limit = checks.not_negative("limit", limit)
        self.blocks: OrderedDict[str, bytes] = OrderedDict()

    def get(self, name: str) -> bytes | None:
        if name in self.blocks:
            self.blocks.move_to_end(name)
        return self.blocks.get(name)

    def put(self, name: str, stored: bytes) -> list[str]:
        """Keep a block; the names of those that had to go for it (its own, if it is larger than the limit)."""
        self.blocks[name] = stored
        self.blocks.move_to_end(name)
        return self._shrink()

    def drop(self, name: str) -> None:
        self.blocks.pop(name, None)

    def _shrink(self) -> list[str]:
        evicted, held = [], sum(map(len, self.blocks.values()))
        while held > self.limit:
            name, stored = self.blocks.popitem(last=False)
            held -= len(stored)
            evicted.append(name)
        return evicted


class Disk:
    """Blocks as files in a local folder, at most `limit` bytes; the least recently used are evicted.

    A file appears whole or not at all: it is written under another name and then renamed.
    """

    name = "disk"

    def __init__(self, folder: str | Path, limit: float):
        self.limit = checks.not_negative("limit", limit)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> bytes | None:
        try:
            stored = self._path(name).read_bytes()
            self._used_now(self._path(name))
        except FileNotFoundError:  # never here, or evicted, also by another process
            return None
        return stored

    def put(self, name: str, stored: bytes) -> list[str]:
        temporary = self.folder / f".{secrets.token_hex(8)}.part"
        temporary.write_bytes(stored)
        self._used_now(temporary)
        temporary.replace(self._path(name))
        return self._shrink()

    def drop(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    @staticmethod
    def _used_now(path: Path) -> None:
        """Set the time of last use; the file system's own clock ticks too slowly to order reads by it."""
        now = time.time_ns()
        os.utime(path, ns=(now, now))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.kv"

    def _shrink(self) -> list[str]:
        found = []
        for path in self.folder.glob("*.kv"):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        evicted, held = [], sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held <= self.limit:
                break
            path.unlink(missing_ok=True)
            held -= size
            evicted.append(path.stem)
        return evicted


class Store:
    """Blocks in a shared store that fsspec reaches: "file:///mnt/shared/kv", "s3://bucket/kv", "memory://kv" …

    No limit of its own. On file systems a block is written under another name and then renamed, so a reader never sees
    half of one; object stores do that themselves. latency, bandwidth: seconds and bytes/s by which every get and put
    is slowed down, to imitate a far store on one machine; 0 and None leave it as fast as it is.
    """

    name = "store"
    WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "oci", "memory"})  # what is put appears whole

    def __init__(self, url: str, *, latency: float = 0.0, bandwidth: float | None = None):
        self.latency = checks.not_negative("latency", latency)
        self.bandwidth = None if bandwidth is None else checks.positive("bandwidth", bandwidth)
        self.files, self.folder = fsspec.core.url_to_fs(url)
        self.files.makedirs(self.folder, exist_ok=True)
        protocol = self.files.protocol
        self.renames = self.WHOLE.isdisjoint([protocol] if isinstance(protocol, str) else protocol)

    def get(self, name: str) -> bytes | None:
        try:
            stored = self.files.cat_file(self._path(name))
        except FileNotFoundError:
            stored = None
        self._wait(len(stored or b""))
        return stored

    def put(self, name: str, stored: bytes) -> list[str]:
        self._wait(len(stored))
        if self.renames:
            temporary = f"{self.folder}/.{secrets.token_hex(8)}.part"
            self.files.pipe_file(temporary, stored)
            self.files.mv(temporary, self._path(name))
        else:
            self.files.pipe_file(self._path(name), stored)
        return []

    def drop(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}.kv"

    def _wait(self, nbytes: int) -> None:
        time.sleep(self.latency + (nbytes / self.bandwidth if self.bandwidth else 0.0))


@dataclass
class Answer:
    """What one prefill did. logits: of the last token. computed: tokens that went through the model.

    fetched: blocks found, by tier; fetch_seconds: time spent on them, by tier; events: (what, tier, block), what being
    "evicted" or "corrupted". seconds: all of it.
    """

    logits: torch.Tensor
    computed: int = 0
    fetched: Counter = field(default_factory=Counter)
    fetch_seconds: Counter = field(default_factory=Counter)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    seconds: float = 0.0


class Server:
    """A small model whose prefixes' keys and values are kept in tiers, fastest first, and fetched instead of computed.

    config: a config.json's content, of a model without sliding windows. block: tokens a block. A prompt goes through
    the model block by block, whether or not the blocks before were fetched: so a fetched prefix and a computed one
    run the same arithmetic on the same numbers, and the logits are equal bit for bit.
    """

    def __init__(self, tiers: Sequence, *, config: Mapping | None = None, block: int = 16, dtype: str = "fp32",
                 seed: int = 0):
        self.block = checks.whole("block", block)
        self.tiers = tuple(tiers)
        self.model = random_model(config, dtype=dtype, seed=seed)
        self.dtype = dtype
        self.architecture = models.from_config(SMALL if config is None else config)
        if any(window is not None for window in self.architecture.windows):
            raise ValueError(f"config is of {self.architecture.family} with sliding windows; whole prefixes are kept "
                             "here, so every layer must have full attention")
        self.root = self._root()

    def prefill(self, tokens: Sequence[int]) -> Answer:
        """The logits after the last token, from as many stored blocks as there are; what is missing is computed.

        The last token always runs, since its logits are wanted: a block is fetched only if a token follows it.
        Newly computed blocks are written to every tier, fetched ones to the tiers above the one they came from.
        """
        if not tokens:
            raise ValueError(f"tokens is {tokens!r}; it must have a token")
        from transformers import DynamicCache

        began, cache, answer = time.perf_counter(), DynamicCache(config=self.model.config), Answer(torch.empty(0))
        names = chain(tokens, self.block, self.root)
        for number, start in enumerate(range(0, len(tokens), self.block)):
            piece = tokens[start:start + self.block]
            name = names[number] if number < len(names) else None
            if name is not None and start + self.block < len(tokens):
                content = self._fetch(name, answer)
                if content is not None:
                    self._into(cache, content)
                    continue
            with torch.no_grad():
                output = self.model(input_ids=torch.tensor([list(piece)]), cache=cache, use_cache=True,
                                    logits_to_keep=1)
            answer.logits, answer.computed = output.logits[0, -1], answer.computed + len(piece)
            if name is not None:
                self._keep(name, self._out_of(cache, start), self.tiers, answer)
        answer.seconds = time.perf_counter() - began
        return answer

    def _fetch(self, name: str, answer: Answer) -> bytes | None:
        """A block's content from the fastest tier that has it whole; a corrupted copy is dropped."""
        for level, tier in enumerate(self.tiers):
            began = time.perf_counter()
            stored = tier.get(name)
            if stored is None:
                continue
            try:
                content = unwrap(name, stored)
            except Corrupted:
                tier.drop(name)
                answer.events.append(("corrupted", tier.name, name))
                continue
            answer.fetched[tier.name] += 1
            answer.fetch_seconds[tier.name] += time.perf_counter() - began
            self._keep(name, content, self.tiers[:level], answer)
            return content
        return None

    @staticmethod
    def _keep(name: str, content: bytes, tiers, answer: Answer) -> None:
        for tier in tiers:
            answer.events += [("evicted", tier.name, other) for other in tier.put(name, wrap(name, content))]

    def _into(self, cache, content: bytes) -> None:
        """Add a block's keys and values to a cache, layer by layer."""
        numbers = torch.frombuffer(bytearray(content), dtype=DTYPES[self.dtype])
        sizes = [heads * self.block * width for _, heads, width in kv_cache.vectors(self.architecture)]
        pieces = iter(numbers.split(sizes * self.architecture.layers))
        for layer in range(self.architecture.layers):
            cache.update(*(next(pieces).reshape(1, heads, self.block, width)
                           for _, heads, width in kv_cache.vectors(self.architecture)), layer)

    def _out_of(self, cache, start: int) -> bytes:
        """The keys and values of one block, layer by layer: exactly kv_cache.stored(…, tokens=block) bytes."""
        pieces = [tensor[0, :, start:start + self.block] for layer in cache.layers
                  for tensor in (layer.keys, layer.values)]
        return b"".join(piece.contiguous().view(torch.uint8).numpy().tobytes() for piece in pieces)

    def _root(self) -> str:
        """What blocks depend on besides their tokens: the model's configuration and weights, and the number format."""
        digest = hashlib.sha256(f"{self.architecture.config_json} {self.dtype} {self.block}".encode())
        for parameter in self.model.parameters():
            digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Fetch:
    """Fetching one prompt's blocks from one tier, or computing them (tier "recompute"); seconds, bytes of them all."""

    tier: str
    blocks: int
    nbytes: int
    predicted: float
    measured: float


def compare(server: Server, tokens: Sequence[int]) -> tuple[Fetch, ...]:
    """Fetch a prompt's blocks from each tier alone, predicted and measured, and compute them, likewise.

    Predicted: blocks · (latency + bytes / bandwidth), with the latency of a read of one byte and the bandwidth of a
    larger one, both measured here on this tier just before; where a Store imitates a far one, with its own latency and
    bandwidth instead. Recomputing is predicted from the time that one block takes.
    Measured: the fastest of three, since whatever else the machine does only adds to it.
    Raises ValueError for a tier that is too small: least recently used is then gone before it is used again.
    """
    everything = server.tiers
    size = kv_cache.stored(server.architecture, tokens=server.block, dtype=server.dtype)
    needed = len(tokens) // server.block * (size + HEADER)
    for tier in everything:
        if getattr(tier, "limit", needed) < needed:
            raise ValueError(f"limit is {tier.limit!r} in tier {tier.name!r}; it must be at least {needed:,} bytes, "
                             "for all blocks of the prompt")
    found = []
    try:
        for tier in everything:
            server.tiers = (tier,)
            server.prefill(tokens)  # now the tier has every block
            latency, bandwidth = _speed(tier, size + HEADER)
            fetched = [server.prefill(tokens) for _ in range(3)]
            blocks = fetched[0].fetched[tier.name]
            found.append(Fetch(tier.name, blocks, blocks * size, blocks * (latency + (size + HEADER) / bandwidth),
                               min(answer.fetch_seconds[tier.name] for answer in fetched)))
        server.tiers = ()
        one, everything_computed = (min(server.prefill(piece).seconds for _ in range(3))
                                    for piece in (tokens[:server.block], tokens))
        blocks = -(-len(tokens) // server.block)
        found.append(Fetch("recompute", blocks, blocks * size, blocks * one, everything_computed))
    finally:
        server.tiers = everything
    return tuple(found)


def _speed(tier, nbytes: int) -> tuple[float, float]:
    """(latency, bandwidth) of a tier: seconds for one byte, then bytes/s over a read of nbytes."""
    if getattr(tier, "bandwidth", None):
        return tier.latency, tier.bandwidth

    def seconds(size: int) -> float:
        tier.put("probe", bytes(size))
        times = []
        for _ in range(5):
            began = time.perf_counter()
            wrapped = wrap("probe", (tier.get("probe") or b"")[HEADER:])  # as a fetch does, checksum and all
            times.append(time.perf_counter() - began)
        tier.drop("probe")
        return sorted(times)[2] if wrapped else 0.0

    latency = seconds(1)
    return latency, nbytes / max(seconds(nbytes) - latency, 1e-7)


# Several processes, one store


def share(url: str, *, processes: int = 3, timeout: float = 120) -> list[dict]:
    """Let several processes with nothing in common but a store answer the same prompts at the same time.

    Each entry says what one process did: tokens "computed", blocks "fetched", blocks "corrupted", and a "digest" of
    all logits, which is the same in all of them. Raises RuntimeError where a process fails.
    """
    checks.whole("processes", processes)
    command = [sys.executable, "-m", "memtier.lab.kv_cache", url, str(processes)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False,
                         cwd=Path(__file__).parents[2])
    if run.returncode:
        raise RuntimeError(f"the processes failed: {' '.join(run.stderr.strip().splitlines()[-1:])}")
    return json.loads(run.stdout.splitlines()[-1])


def prompts(count: int = 6, length: int = 100, prefix: int = 64, seed: int = 0) -> list[list[int]]:
    """Prompts that share their first `prefix` tokens, as those behind one system prompt do."""
    generator = torch.Generator().manual_seed(seed)
    same = torch.randint(SMALL["vocab_size"], (prefix,), generator=generator).tolist()
    own = torch.randint(SMALL["vocab_size"], (count, length - prefix), generator=generator).tolist()
    return [same + each for each in own]


def answers(url: str, start=None) -> dict:
    """What one of the processes does: all prompts, through a store of blocks and nothing else."""
    torch.set_num_threads(1)
    server = Server([Store(url)])
    if start is not None:
        start.wait()
    digest, computed, fetched, events = hashlib.sha256(), 0, 0, []
    for prompt in prompts():
        answer = server.prefill(prompt)
        digest.update(answer.logits.numpy().tobytes())
        computed, fetched = computed + answer.computed, fetched + answer.fetched.total()
        events += answer.events
    return {"computed": computed, "fetched": fetched, "corrupted": len(events), "digest": digest.hexdigest()}


def _answer(url: str, start, results) -> None:
    try:
        results.put(answers(url, start))
    except BaseException as error:
        start.abort()  # or the others would wait for this one
        results.put(f"{type(error).__name__}: {error}")
        raise


def main(url: str, processes: int) -> list[dict]:
    """Fork the processes once torch and transformers are imported, before either has run anything."""
    random_model()
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=_answer, args=(url, start, results)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=90) for _ in workers]
    for worker in workers:
        worker.join()
    if failures := [each for each in found if isinstance(each, str)]:
        raise RuntimeError(failures[0])
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
