// Runs memtier for the page: gets an ask as JSON text, gives the reply as JSON text (memtier.live.answer).
// Served as <site>/live/worker.js beside <site>/live/pyodide/.

// A browser compiles well what has run a few times: the first ask is answered again and again for a moment before its
// reply is sent, so that whoever goes on dragging the same control does not feel it.
const REHEARSAL = 200; // milliseconds
let rehearsed = false;

// Set before anything is awaited: a module worker loses what arrives earlier.
self.onmessage = async ({ data: { id, ask } }) => {
  try {
    const answer = await python;
    for (const end = performance.now() + REHEARSAL; !rehearsed && performance.now() < end; ) answer(ask);
    rehearsed = true;
    self.postMessage({ id, reply: answer(ask) });
  } catch (error) {
    self.postMessage({ id, failed: lastLine(error) });
  }
};

const lastLine = (error) => String(error?.message ?? error).trim().split("\n").at(-1);

// Pyodide waits for ever when a file does not arrive or does not compile: what fails while it starts ends the start.
const failure = new Promise((_, reject) => {
  for (const [place, name] of [[self, "fetch"], [WebAssembly, "instantiate"], [WebAssembly, "instantiateStreaming"]]) {
    const original = place[name];
    place[name] = (...given) => {
      const result = original.apply(place, given);
      result.then((got) => got.ok === false && reject(new Error(`${got.status} ${got.url}`)), reject);
      return result;
    };
  }
});

const start = async () => {
  const indexURL = new URL("./pyodide/", import.meta.url).href;
  const { loadPyodide } = await import(indexURL + "pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL, packages: ["memtier"] });
  return pyodide.runPython("from memtier import live; live.answer");
};

const python = Promise.race([start(), failure]);
python.then(
  () => self.postMessage({ started: true }),
  (error) => self.postMessage({ broken: lastLine(error) }),
);
