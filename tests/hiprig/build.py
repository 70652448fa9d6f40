"""Build the rig's libraries for the CuPy wheel of the running interpreter, once for each content.

CuPy's extension modules say which libraries they need and which symbols, with versions, they want from each. The ones
that the rig implements come from ``src``; the others are stubs that answer with an error.
"""

from __future__ import annotations

import collections
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"

# What the unversioned symbols of a library begin with; versioned ones are told apart by their version as well.
PREFIXES = {
    "libamdhip64": r"(?:__hip|hip[A-Z])",
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
}
RUNTIME, BLAS, COMPILER = "libamdhip64.so.7", "libhipblas", "libhiprtc.so.7"

Command = list[str]


@dataclass
class Wanted:
    """What CuPy wants of one library: symbol names with their versions, empty where a symbol has none."""

    soname: str
    symbols: dict[str, str] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return self.soname.split(".")[0]


class BuildError(Exception):
    """The rig cannot be built, and why."""


def build() -> Path:
    """The folder of the built libraries: from the cache, or built into it. BuildError says what is missing."""
    for tool in ("g++", "gcc", "nm", "objdump"):
        if shutil.which(tool) is None:
            raise BuildError(f"the rig needs {tool}: install g++ and binutils")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plait-hiprig"
    target = cache / _digest()
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch) / "rig"
            (made / "lib").mkdir(parents=True)
            _build_into(made / "lib")
            shutil.copytree(HERE / "include", made / "include")  # where the kernel compiler looks for it
            try:
                made.rename(target)
            except OSError:  # another builder was faster, with the same content
                if not target.exists():
                    raise
    return target / "lib"


def _digest() -> str:
    """A name for the content: sources, compiler, the wheel."""
    content = hashlib.sha256()
    for path in sorted([*SOURCES.rglob("*"), *(HERE / "include").rglob("*"), Path(__file__)]):
        if path.is_file():
            content.update(str(path.relative_to(HERE)).encode() + b"\0" + path.read_bytes())
    content.update(_output("g++", "--version").encode())
    for library in sorted(_site().glob("cupy*/RECORD")) + sorted(_site().glob("cupy_*.dist-info/RECORD")):
        content.update(library.read_bytes())
    return content.hexdigest()[:20]


def _site() -> Path:
    found = importlib.util.find_spec("cupy")
    if found is None or found.origin is None:
        raise BuildError("the rig is built for CuPy's ROCm wheel: install cupy-rocm-7-0")
    return Path(found.origin).parent.parent


def _build_into(folder: Path) -> None:
    """Compile everything in parallel, then link: the libraries that need the runtime after the runtime."""
    compiles: list[Command] = []
    links: list[Command] = []
    last_links: list[Command] = []
    for wanted in [*_wanted(), Wanted(COMPILER)]:
        objects = []
        for source in _sources(folder, wanted):
            objects.append(str(folder / f"{wanted.stem}.{source.stem}.o"))
            compiles.append([*_compile_command(source), "-o", objects[-1]])
        link = ["g++", *_link_flags(folder, wanted), *objects, "-o", str(folder / wanted.soname), "-ldl"]
        if wanted.stem == BLAS:
            last_links.append([*link, str(folder / RUNTIME)])
        else:
            links.append(link)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for batch in (compiles, links, last_links):
            for done in threads.map(_run, batch):
                if done.returncode:
                    raise BuildError(f"{' '.join(done.args)}\n{done.stderr[:4000]}")
                sys.stderr.write(done.stderr)  # warnings: there should be none
    for path in folder.iterdir():
        if path.suffix in {".c", ".cpp", ".o", ".map"}:
            path.unlink()


def _wanted() -> list[Wanted]:
    sonames: set[str] = set()
    symbols: dict[str, str] = {}
    for module in _site().glob("cupy*/**/*.so"):
        sonames.update(re.findall(r"NEEDED\s+(lib(?:hip|roc|rccl|amd)\S+)", _output("objdump", "-p", str(module))))
        for line in _output("nm", "-D", "--undefined-only", str(module)).splitlines():
            name, _, version = line.split()[-1].partition("@")
            symbols[name] = version
    found = []
    for soname in sorted(sonames):
        wanted = Wanted(soname)
        prefix = PREFIXES.get(wanted.stem)
        if prefix is None:
            raise BuildError(f"this CuPy needs {soname}, which the rig does not know")
        wanted.symbols = {name: version for name, version in symbols.items() if re.match(prefix, name)}
        found.append(wanted)
    if RUNTIME not in sonames:
        raise BuildError(f"this CuPy does not need {RUNTIME}: the rig is for the wheel cupy-rocm-7-0")
    return found


def _sources(folder: Path, wanted: Wanted) -> list[Path]:
    """The files that a library is made of: written ones, and stubs for what they lack."""
    if wanted.soname == COMPILER:
        return [SOURCES / "rtc.cpp"]
    if wanted.soname == RUNTIME:
        sources = sorted(SOURCES.glob("hip*.cpp"))
        missing = sorted(set(wanted.symbols) - _defined(sources, r"_*hip[A-Za-z0-9_]*"))
        if missing:
            raise BuildError(f"this CuPy wants functions that the rig lacks: {', '.join(missing)}")
        return [_joined(folder, sources)]
    if wanted.stem == BLAS:
        source = SOURCES / "blas.cpp"
        return [source, _stubs(folder, wanted, set(wanted.symbols) - _defined([source], r"hipblas\w+"))]
    return [_stubs(folder, wanted, set(wanted.symbols))]


def _joined(folder: Path, sources: list[Path]) -> Path:
    """One source that includes the others: the headers of the C++ library are read once, not once for each file."""
    path = folder / "runtime.cpp"
    path.write_text("".join(f'#include "{source}"\n' for source in sources))
    return path


def _defined(sources: list[Path], name: str) -> set[str]:
    """The functions of some sources: names before a parenthesis, or a comma where a macro defines them."""
    return set(re.findall(rf"\b({name})[(,]", "".join(source.read_text() for source in sources)))


def _compile_command(source: Path) -> Command:
    flags = ["-O1", "-g1", "-fPIC", "-pthread", "-Wall", "-Wextra", "-c", str(source)]
    return ["gcc", *flags] if source.suffix == ".c" else ["g++", "-std=c++17", *flags]


def _link_flags(folder: Path, wanted: Wanted) -> list[str]:
    """The library's name, and a version script where CuPy asks for versions."""
    nodes: dict[str, list[str]] = collections.defaultdict(list)
    for name, version in wanted.symbols.items():
        if version:
            nodes[version].append(name)
    flags = ["-shared", "-pthread", f"-Wl,-soname,{wanted.soname}"]
    if nodes:
        script = folder / f"{wanted.stem}.map"
        lines = [f"{version} {{ global: {'; '.join(sorted(names))}; }};" for version, names in sorted(nodes.items())]
        if wanted.soname == RUNTIME:
            lines.append("HIPCPU { global: hipcpu_*; local: *; };")
        script.write_text("\n".join(lines) + "\n")
        flags.append(f"-Wl,--version-script={script}")
    return flags


def _stubs(folder: Path, wanted: Wanted, names: set[str]) -> Path:
    """A C file whose functions answer every call with an error."""
    path = folder / f"{wanted.stem}.c"
    path.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(names)) or "int hipcpu_nothing;\n")
    return path


def _run(command: Command) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    print(build())
