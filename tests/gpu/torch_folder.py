"""Finds LibTorch on this machine: a folder with include/ and lib/, as LIBTORCH_DIR names it or as Python's torch package is."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Finding a package does not import it, which takes seconds.
FIND = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"


def version(folder):
    """"2.11", as its headers say; None where they do not."""
    header = pathlib.Path(folder) / "include/torch/headeronly/version.h"
    if not header.exists():
        return None
    numbers = dict(re.findall(r"#define TORCH_VERSION_(MAJOR|MINOR) (\d+)", header.read_text()))
    return "{MAJOR}.{MINOR}".format(**numbers) if len(numbers) == 2 else None


def of_python(python):
    """The folder of a Python's torch package; None where it has none."""
    answer = subprocess.run([python, "-c", FIND], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, check=False)
    folder = answer.stdout.strip()
    return pathlib.Path(folder) if folder else None


def candidates(environment):
    if environment.get("LIBTORCH_DIR"):
        yield pathlib.Path(environment["LIBTORCH_DIR"])
        return
    for python in dict.fromkeys([sys.executable, "python3", "python", "/opt/conda/bin/python"]):
        if shutil.which(python):
            folder = of_python(python)
            if folder:
                yield folder


def find(environment=os.environ):
    """The first LibTorch with CUDA. Raises LookupError, saying what to do."""
    looked = []
    for folder in candidates(environment):
        if (folder / "lib/libtorch_cuda.so").exists():
            return folder
        looked.append(str(folder))
    what = "no libtorch_cuda.so in " + " or ".join(looked) if looked else "no Python here has torch"
    raise LookupError("no LibTorch with CUDA: {}; set LIBTORCH_DIR to a folder with lib/libtorch_cuda.so".format(what))


def library_folders(folder):
    """Where the loader finds LibTorch and the libraries of CUDA that came with it as Python packages."""
    beside = sorted(str(path) for path in folder.parent.glob("nvidia/*/lib"))
    return [str(folder / "lib")] + beside
