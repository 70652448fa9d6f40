"""Builds the rig's libraries for the installed CuPy ROCm wheel, once per content of the sources, in a cache folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = "libamdhip64"
# Which of the symbols that CuPy wants without saying from where belong to which library.
PREFIXES = {
    "libhipblas": "hipblas",
    "libhipfft": "hipfft",
    "libhiprand": "hiprand",
    "libhipsparse": "hipsparse",
    "librccl": "nccl",
    "librocblas": "rocblas",
    "librocfft": "rocfft",
    "librocsolver": "rocsolver",
    "libroctracer64": "roctracer",
    "libroctx64": "roctx",
    RUNTIME: r"(?:__hip|hip[A-Z])",
}
NEEDED = re.compile(r"NEEDED\s+(lib(?:hip|roc|rccl|amd)\S+)")
COMPILE = ["g++", "-std=c++17", "-O2", "-g", "-pthread", "-fPIC", "-fvisibility=hidden"]
LINK = ["g++", "-shared", "-pthread"]


class BuildError(RuntimeError):
    """The rig cannot be built here; the message says what is missing or what the compiler said."""


@dataclass(frozen=True, slots=True)
class Library:
    """One library that CuPy needs: its file name and the symbols wanted from it, each with its version or ''."""

    soname: str
    symbols: dict[str, str]

    @property
    def stem(self) -> str:
        return self.soname.split(".")[0]


def wheel() -> importlib.metadata.Distribution | None:
    """The installed CuPy ROCm wheel, found without importing it."""
    found = importlib.metadata.distributions()
    return next((d for d in found if (d.metadata["Name"] or "").lower().startswith("cupy-rocm")), None)


def build() -> Path:
    """The folder with the rig for this CuPy wheel and compiler: ``lib``, ``include``, ``bin``. Built if it is missing.

    Safe against other builders: each works in a folder of its own, and the first rename wins.
    Raises BuildError if a tool or the wheel is missing or the compiler refuses.
    """
    missing = [tool for tool in ("g++", "nm", "objdump") if shutil.which(tool) is None]
    if missing:
        raise BuildError(f"the rig needs {', '.join(missing)}: install g++ and binutils (Debian: apt install g++)")
    installed = wheel()
    if installed is None:
        raise BuildError("the rig needs the CuPy ROCm wheel: pip install cupy-rocm-7-0, beside no other CuPy wheel")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plait-hiprig"
    target = cache / _key(installed)
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="building-", dir=cache))
    try:
        _build_into(scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _key(installed: importlib.metadata.Distribution) -> str:
    """What the libraries depend on: our sources, the compiler, the wheel."""
    digest = hashlib.sha256()
    sources = [HERE / "build.py", *(path for name in ("src", "include", "bin") for path in (HERE / name).rglob("*"))]
    for path in sorted(path for path in sources if path.is_file()):
        digest.update(f"{path.relative_to(HERE)}\0".encode() + path.read_bytes())
    digest.update(_output("g++", "--version").encode())
    digest.update(f"{installed.metadata['Name']} {installed.version}".encode())
    return digest.hexdigest()[:16]


def _build_into(root: Path) -> None:
    lib, objects = root / "lib", root / "objects"
    lib.mkdir()
    objects.mkdir()
    for name in ("include", "bin"):
        shutil.copytree(HERE / name, root / name)
    (root / "bin" / "hipcc").chmod(0o755)
    sources = sorted((HERE / "src").glob("*.cpp"))
    # The kernel compiler is slow to start otherwise: the slowest source goes first.
    sources.sort(key=lambda path: -path.stat().st_size)
    include = f"-I{root / 'include'}"
    _run_all([*COMPILE, include, "-c", str(path), "-o", str(objects / f"{path.stem}.o")] for path in sources)
    libraries = _wanted_libraries()
    for library in libraries:
        if library.stem == RUNTIME:
            apart = {"rtc", "blas"}
            own = [str(objects / f"{path.stem}.o") for path in sources if path.stem not in apart]
            _link_runtime(library, own, lib, objects)
    runtime = next(str(path) for path in lib.glob(f"{RUNTIME}.so.*"))
    rtc = "libhiprtc.so.7"  # CuPy opens it when it first compiles
    commands = [[*LINK, f"-Wl,-soname,{rtc}", str(objects / "rtc.o"), "-ldl", "-o", str(lib / rtc)]]
    for library in libraries:
        if library.stem != RUNTIME:
            own = [str(objects / "blas.o"), runtime] if library.stem == "libhipblas" else []
            commands.append(_stub_command(library, own, lib, objects))
    _run_all(commands)
    shutil.rmtree(objects)


def _wanted_libraries() -> list[Library]:
    """What the extension modules of the wheel are linked against, read from their dynamic sections."""
    spec = importlib.util.find_spec("cupy")
    if spec is None or spec.origin is None:
        raise BuildError("the CuPy wheel is installed but not importable")
    site = Path(spec.origin).parent.parent
    modules = [str(path) for path in sorted(site.glob("cupy*/**/*.so"))]
    with ThreadPoolExecutor() as pool:
        headers = list(pool.map(lambda path: _output("objdump", "-p", path), modules))
        undefined = list(pool.map(lambda path: _output("nm", "-D", "--undefined-only", path), modules))
    sonames = {name for text in headers for name in NEEDED.findall(text)}
    symbols: dict[str, str] = {}
    for line in "".join(undefined).splitlines():
        name, _, version = line.split()[-1].partition("@")
        symbols[name] = version
    return [
        Library(soname, {n: v for n, v in symbols.items() if re.match(PREFIXES[soname.split(".")[0]], n)})
        for soname in sorted(sonames)
    ]


def _version_script(library: Library, path: Path, *, extra: str = "") -> list[str]:
    """Flags that give the exported symbols the versions that the wheel was linked with; none if it has none."""
    nodes = defaultdict(list)
    for name, version in library.symbols.items():
        nodes[version].append(name)
    nodes.pop("", None)
    if not nodes:
        return []
    exports = {version: "; ".join(sorted(names)) for version, names in sorted(nodes.items())}
    text = "".join(f"{version} {{ global: {names}; }};\n" for version, names in exports.items())
    path.write_text(text + extra)
    return [f"-Wl,--version-script={path}"]


def _link_runtime(library: Library, own: list[str], lib: Path, objects: Path) -> None:
    """The HIP runtime itself, with every symbol that CuPy wants from it."""
    extra = "HIPRIG { global: hipcpu_*; local: *; };\n"
    script = _version_script(library, objects / "runtime.map", extra=extra)
    target = lib / library.soname
    _run([*LINK, f"-Wl,-soname,{library.soname}", *script, *own, "-ldl", "-o", str(target)])
    defined = _output("nm", "-D", "--defined-only", str(target)).splitlines()
    lacking = sorted(set(library.symbols) - {line.split()[-1].partition("@")[0] for line in defined})
    if lacking:
        raise BuildError(f"this CuPy wheel wants what the rig's runtime lacks: {', '.join(lacking)}")


def _stub_command(library: Library, own: list[str], lib: Path, objects: Path) -> list[str]:
    """Links a library whose functions, but for those that ``own`` defines, fail with status 1."""
    have = {line.split()[-1] for path in own for line in _output("nm", "--defined-only", path).splitlines() if line}
    stub = objects / f"{library.stem}.stub.c"
    names = sorted(set(library.symbols) - have)
    lines = [f'__attribute__((visibility("default"))) int {name}(void) {{ return 1; }}\n' for name in names]
    stub.write_text("".join(lines) or "int hiprig_placeholder;\n")
    script = _version_script(library, objects / f"{library.stem}.map")
    # gcc and g++ differ in what they link: only the BLAS needs the C++ library.
    tool = "g++" if own else "gcc"
    language = ["-x", "c", str(stub), "-x", "none"]
    soname = f"-Wl,-soname,{library.soname}"
    return [tool, "-shared", "-fPIC", "-w", soname, *script, *language, *own, "-o", str(lib / library.soname)]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr[:4000]}")


def _run_all(commands: Iterable[list[str]]) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands))


if __name__ == "__main__":
    print(build())
    sys.exit()
