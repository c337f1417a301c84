"""Writes a wheel: a zip file of a package and of what describes it (the binary distribution format of Python's packaging guide)."""

import base64
import hashlib
import pathlib
import zipfile


class Wheel:
    """A wheel in the folder `out`, complete when it is closed. `tag`: as "py3-none-manylinux_2_36_x86_64"."""

    def __init__(self, out, name, version, tag):
        self.path = pathlib.Path(out) / f"{name}-{version}-{tag}.whl"
        self._information = f"{name}-{version}.dist-info"
        self._tag = tag
        self._records = []
        self._archive = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED)

    def add(self, name, data, mode=0o644):
        """A file of the package. `data`: its bytes."""
        # One time for all, so that the same files are the same wheel.
        information = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        information.external_attr = (0o100000 | mode) << 16
        information.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(information, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._records.append(f"{name},sha256={digest},{len(data)}\n")

    def describe(self, name, text):
        """A file beside the package: METADATA, entry_points.txt, licenses/..."""
        self.add(f"{self._information}/{name}", text.encode())

    def close(self):
        self.describe("WHEEL", f"Wheel-Version: 1.0\nGenerator: penstock deploy/wheels/build\nRoot-Is-Purelib: false\nTag: {self._tag}\n")
        record = f"{self._information}/RECORD"
        self._archive.writestr(record, "".join(self._records) + f"{record},,\n")
        self._archive.close()
