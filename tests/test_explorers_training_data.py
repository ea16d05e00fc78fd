"""What the explorers of training data say: the chapter's moments, and that the starving hop is named."""

import pytest

from memtier import live, training_data
from memtier.live.explorers import training_data as declared

DEMAND, PIPELINE, CACHE = (live.get(f"training_data.{name}") for name in ("demand", "pipeline", "cache"))


def view(explorer, preset="", **values):
    return explorer.view(**explorer.defaults | dict(explorer.presets.get(preset, {})) | values)


def test_llama_3_405b_reads_10_8_mb_a_second():
    assert DEMAND.predict.truth(DEMAND.defaults | dict(DEMAND.predict.values)) == pytest.approx(10.8e6, rel=5e-3)
    said = view(DEMAND, "Llama 3 405B").say
    assert "2.69 million tokens a second, 10.8 MB/s in all. 15 trillion tokens are 60 TB" in said
    assert "are 30 TB" in view(DEMAND, "the same ids in 2 bytes").say
    assert "are 30 TB" in view(DEMAND, "GPT-2's vocabulary").say


def test_the_corpus_is_drawn_as_it_lies_on_disk():
    """Batches of int64 never exist all at once: a bar of 120 TB of them against a node's NVMe compared nothing."""
    _, disk = view(DEMAND, "Llama 3 405B").figures
    assert [row[0] for row in disk.rows] == ["as ids of 4 bytes"]
    assert "int64" not in disk.html


def test_a_bare_count_has_no_vocabulary_and_is_told_so():
    assert "has no vocabulary: 4 bytes a token are taken" in view(DEMAND, model=70_000_000_000).note
    assert "vocabulary" not in view(DEMAND).note
    assert "vocabulary" not in view(DEMAND, model=70_000_000_000, ids="2").note


def test_a_second_question_is_how_many_requests():
    truth = PIPELINE.predict.truth(PIPELINE.defaults | dict(PIPELINE.predict.values))
    assert truth == 3035
    said = view(PIPELINE, "images, an object each", in_flight=4096)
    assert "What starves them: object storage → NVMe (requests a second)." in said.say
    assert "needs 3,035 requests in flight" in said.say
    assert "needs 42 requests in flight" in view(PIPELINE, "images in shards, 64 in flight").say


@pytest.mark.parametrize(("preset", "words"), [
    ("images, an object each", "get 2.11 % of it. What starves them: object storage → NVMe (64 in flight)"),
    ("images in shards, 64 in flight", "and get it. The busiest hop, object storage → NVMe, is at 64.6 %"),
    ("a slow CPU", "get 24 % of it. What starves them: CPU: decode and batch (4,800 samples a second)"),
    ("text for 8B", "and get it."),
    ("medical volumes", "What starves them: writing NVMe"),
])
def test_the_hop_that_starves_is_named(preset, words):
    assert words in view(PIPELINE, preset).say


def test_your_own_samples_and_a_full_cache():
    said = view(PIPELINE, sample="own", own_size=2e6, own_rate=10, gpus=1)
    assert "1 GPU wants 10 samples a second, 20 MB/s, and gets it." in said.say
    cached = view(PIPELINE, cached=1, in_flight=1)
    assert "and get it." in cached.say
    assert "a day" not in cached.note  # nothing is fetched, so nothing is written


def test_half_of_the_set_answers_15_3_percent_or_half():
    assert CACHE.predict.truth(CACHE.defaults | dict(CACHE.predict.values)) == training_data.cache_hits(0.5)
    assert "15.3 % of the reads hit" in view(CACHE, "half, LRU").say
    assert "50 % of the reads hit" in view(CACHE, "half, pinned").say
    assert "0 % of the reads hit" in view(CACHE, "nine tenths, same order").say
    once = view(CACHE, "half, pinned", epochs=1).say
    assert "In 1 epoch 20 TB are read, and the store sends 20 TB of them." in once


def test_samples_have_the_ledgers_figures():
    assert declared.SAMPLES["image"][0].stored == 150_000
    assert declared.SAMPLES["volume"][1] == pytest.approx(7 / 0.323, rel=1e-3)


def test_a_cpu_that_prepares_one_sample_a_second_is_said_so():
    explorer = live.get("training_data.pipeline")
    assert "(1 sample a second)" in explorer.view(**explorer.defaults | {"prepared": 1, "gpus": 1}).say
    assert "(8 samples a second)" in explorer.view(**explorer.defaults | {"prepared": 1, "gpus": 8}).say
