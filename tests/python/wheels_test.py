"""The wheels of deploy/wheels/build, made and installed by the commands of docs/python.md: wheels_test.py BUILD_FOLDER MODULES.

MODULES: a folder with grpcio, protobuf and numpy, so that no registry is asked. Ends with 77 where a tool is missing, and says which.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "planner/client/python/tests"))
from pages import commands_of

BUILT, MODULES = (str(Path(argument).resolve()) for argument in sys.argv[1:3])
TOOLS = ("patchelf", "readelf", "strip", "protoc", "dpkg-query", "git")
PLAN = f"""
import penstock
with penstock.local() as planner:
    plan = planner.client.plan([900, 120, 3000], profile="{ROOT}/examples/gpt_7b.json", pp=4, dp=2)
print(penstock.__file__, plan.predicted_seconds)
"""


def run(*words: object, **more: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100, check=False, **more)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class Wheels(unittest.TestCase):
    folder: Path
    installed: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        # Those of the page, beside the repository; and no registry is asked.
        no_registry = {**os.environ, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
        for command in commands_of("docs/python.md"):
            for said, meant in {"build/release": BUILT, "build/wheels": "wheels", "python3": sys.executable}.items():
                command = command.replace(said, meant)
            if command.startswith("deploy/wheels/build"):
                command = f"{ROOT}/{command} --out wheels"
            run("bash", "-euc", command, cwd=cls.folder, env=no_registry)
        cls.installed = next((cls.folder / "fresh/lib").glob("python*/site-packages"))

    def test_the_lines_run_without_a_path(self) -> None:
        said = run(self.folder / "fresh/bin/python", "-c", PLAN, env={"PYTHONPATH": MODULES}, cwd=self.folder)
        module, seconds = said.split()
        self.assertTrue(Path(module).is_relative_to(self.installed), module)
        self.assertGreater(float(seconds), 0)

    def test_the_program_is_on_the_path_of_the_environment(self) -> None:
        said = run(self.folder / "fresh/bin/penstock-planner", "--version", env={})
        self.assertEqual(said, run(Path(BUILT, "bin/penstock-planner"), "--version"))

    def test_it_loads_nothing_of_the_system_but_the_c_library(self) -> None:
        text = run("ldd", self.installed / "penstock_planner/bin/penstock-planner")
        loaded = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.MULTILINE)
        outside = {Path(path).name for path in loaded if not Path(path).is_relative_to(self.folder)}
        self.assertNotIn("not found", text)
        self.assertGreater(len(loaded) - len(outside), 20)
        self.assertLessEqual({name.split(".")[0] for name in outside}, {"libc", "libm", "libresolv", "ld-linux-x86-64", "ld-linux-aarch64"})

    def test_licences_of_all_that_is_inside_are_there(self) -> None:
        wheel = next((self.folder / "wheels").glob("penstock_planner-*.whl"))
        names = [name.rpartition("/")[2] for name in zipfile.ZipFile(wheel).namelist() if "/licenses/" in name]
        self.assertIn("LICENSE", names)
        self.assertGreater(len(names), 20)

    def test_messages_are_of_this_contract(self) -> None:
        files = {file.name for file in (self.installed / "penstock/v1").glob("*_pb2.py")}
        self.assertEqual(files, {f"{file.stem}_pb2.py" for file in (ROOT / "proto/penstock/v1").glob("*.proto")})


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    missing += [module for module in ("venv", "ensurepip") if importlib.util.find_spec(module) is None]
    if missing:
        print(f"skipped: no {', '.join(missing)} (deploy/setup packages)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
