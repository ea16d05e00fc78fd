// node byte_compile.mjs CORE IN OUT [IN OUT …]
// Copies zip archives (wheels, Pyodide's standard library) with compiled modules in place of sources. The compiler is the very
// Pyodide that will import them, so its version always fits; a browser then starts in about half the time.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [core, ...archives] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.resolve(core, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: path.resolve(core) + path.sep });

python.runPython(`
import importlib.util, io, zipfile
from importlib._bootstrap_external import _code_to_hash_pyc

def compiled(name, source):
    code = compile(source, "/" + name, "exec", dont_inherit=True, optimize=0)
    return bytes(_code_to_hash_pyc(code, importlib.util.source_hash(source), checked=False))

def byte_compile(archive):
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".py"):
                name, data = name + "c", compiled(name, data)
            member = zipfile.ZipInfo(name)  # carries a fixed date: the same sources give the same archive
            new.writestr(member, data, zipfile.ZIP_DEFLATED, 9)
    return result.getvalue()
`);
const byteCompile = python.globals.get("byte_compile");
for (let i = 0; i < archives.length; i += 2) {
  const archive = python.toPy(new Uint8Array(fs.readFileSync(archives[i])));
  fs.writeFileSync(archives[i + 1], byteCompile(archive).toJs());
}
