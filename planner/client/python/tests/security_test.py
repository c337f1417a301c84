"""TLS, certificates and tokens of the package with a real planner: PENSTOCK_PLANNER names the program."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

# First: see there.
from planner_process import MESH, ROOT, PlannerProcess

import penstock
from penstock import errors

LENGTHS = [900, 120, 3000]
TOKENS = {"client": "client-token-of-alice", "viewer": "viewer-token-of-nobody", "bob": "client-token-of-bob"}
UNKNOWN = "a-token-that-nobody-gave"


@unittest.skipUnless(shutil.which("openssl"), "no openssl here, with which deploy/certs makes certificates")
class APlannerThatKnowsItsCallers(unittest.TestCase):
    folder: Path
    planner: PlannerProcess

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        for arguments in (["localhost"], ["--caller", "client", "alice"], ["--caller", "worker", "alice"]):
            certs = [str(ROOT / "deploy/certs"), folder.name, *arguments]
            done = subprocess.run(certs, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
        roles = {"client": "client alice", "viewer": "viewer", "bob": "client bob"}
        (cls.folder / "tokens").write_text("".join(f"{TOKENS[name]} {role}\n" for name, role in roles.items()))
        for name, token in {**TOKENS, "unknown": UNKNOWN, "empty": ""}.items():
            (cls.folder / f"{name}.token").write_text(token + "\n")
        flags = {"tls-cert": "planner.crt", "tls-key": "planner.key", "tls-client-ca": "ca.crt", "tokens": "tokens"}
        cls.planner = PlannerProcess(cls, folder.name, "--store=memory", *(f"--{k}={cls.folder / v}" for k, v in flags.items()))

    def security(self, *, caller: str = "", token: str = "") -> penstock.Security:
        """Of one who is known by a certificate or a token, or not at all."""
        return penstock.Security(
            authority=str(self.folder / "ca.crt"),
            certificate=str(self.folder / f"{caller}.crt") if caller else "",
            key=str(self.folder / f"{caller}.key") if caller else "",
            token=str(self.folder / f"{token}.token") if token else "",
            server_name="localhost",
        )

    def client(self, **known: str) -> penstock.Client:
        client = penstock.Client(self.planner.address, security=self.security(**known))
        self.addCleanup(client.close)
        return client

    def test_plans_for_a_certificate_and_for_a_token(self) -> None:
        for known in ({"caller": "client-alice"}, {"token": "client"}):
            self.assertTrue(self.client(**known).plan(LENGTHS, **MESH).replicas)

    def test_plans_for_asyncio(self) -> None:
        async def ask(**known: str) -> penstock.Plan:
            async with penstock.AsyncClient(self.planner.address, security=self.security(**known)) as client:
                return await client.plan(LENGTHS, **MESH)

        for known in ({"caller": "client-alice"}, {"token": "client"}):
            self.assertTrue(asyncio.run(ask(**known)).replicas)

    def test_one_that_is_not_known_is_unauthenticated(self) -> None:
        for known in ({}, {"token": "unknown"}):
            with self.assertRaises(errors.Unauthenticated) as raised:
                self.client(**known).plan(LENGTHS, **MESH)
            self.assertTrue(raised.exception.message)

    def test_a_role_that_may_not_is_denied(self) -> None:
        for known in ({"caller": "worker-alice"}, {"token": "viewer"}):
            with self.assertRaises(errors.PermissionDenied) as raised:
                self.client(**known).plan(LENGTHS, **MESH)
            self.assertIn("PlanBatch", raised.exception.message)

    def test_a_job_is_its_owners(self) -> None:
        options = {"layers_per_stage": [8, 8, 8, 8]}
        job = self.client(token="client").job("of-alice", options=options, **MESH)
        self.assertEqual([program.iteration for program in job.ahead([LENGTHS])], [0])
        with self.assertRaises(errors.PermissionDenied):
            self.client(token="bob").find_job("of-alice")
        self.assertEqual(self.client(caller="worker-alice").find_job("of-alice").spec.owner, "alice")
        job.delete()

    def test_an_authority_that_did_not_sign_is_not_trusted(self) -> None:
        with tempfile.TemporaryDirectory() as other:
            subprocess.run([str(ROOT / "deploy/certs"), other, "localhost"], capture_output=True, timeout=60, check=True)
            stranger = penstock.Security(authority=f"{other}/ca.crt", server_name="localhost")
            with (
                penstock.Client(self.planner.address, security=stranger) as client,
                self.assertRaises((errors.Unavailable, errors.DeadlineExceeded)),
            ):
                client.plan(LENGTHS, timeout=1.0, **MESH)

    def test_an_expired_certificate_is_named(self) -> None:
        """One's own before anybody is called, the planner's soon."""
        with tempfile.TemporaryDirectory() as folder:
            for arguments, days in ((["localhost"], "-1"), (["--caller", "client", "late"], "-1"), (["--caller", "client"], "1")):
                # The authority is made first, of the first certificate's days: it has to be valid.
                for wanted in ("1", days) if arguments == ["localhost"] else (days,):
                    certs = [str(ROOT / "deploy/certs"), folder, *arguments]
                    environment = {**os.environ, "PENSTOCK_CERT_DAYS": wanted}
                    subprocess.run(certs, capture_output=True, timeout=60, check=True, env=environment)
            late = penstock.Security(
                authority=f"{folder}/ca.crt", certificate=f"{folder}/client-late.crt", key=f"{folder}/client-late.key"
            )
            with self.assertRaisesRegex(ValueError, r"^certificate: '.*client-late.crt' expired on \d{4}-\d\d-\d\d .* renew it"):
                penstock.Client("127.0.0.1:1", security=late)
            flags = {"tls-cert": "planner.crt", "tls-key": "planner.key", "tls-client-ca": "ca.crt"}
            planner = PlannerProcess(self, folder, "--store=memory", *(f"--{k}={folder}/{v}" for k, v in flags.items()))
            known = penstock.Security(
                authority=f"{folder}/ca.crt", certificate=f"{folder}/client.crt", key=f"{folder}/client.key"
            )
            begin = time.monotonic()
            with (
                penstock.Client(planner.address, security=known) as client,
                self.assertRaisesRegex(errors.Unavailable, "certificate of the planner at .* has expired"),
            ):
                client.plan(LENGTHS, **MESH)

            async def ask() -> None:
                async with penstock.AsyncClient(planner.address, security=known) as client:
                    await client.plan(LENGTHS, **MESH)

            with self.assertRaisesRegex(errors.Unavailable, "has expired"):
                asyncio.run(ask())
            self.assertLess(time.monotonic() - begin, 10.0)

    def test_one_that_does_not_encrypt_gets_nothing(self) -> None:
        with penstock.Client(self.planner.address) as client, self.assertRaises((errors.Unavailable, errors.DeadlineExceeded)):
            client.plan(LENGTHS, timeout=1.0, **MESH)

    def test_files_that_cannot_be_used_are_named(self) -> None:
        with self.assertRaisesRegex(ValueError, "^token: the file .*empty.token is empty"):
            self.client(token="empty")
        with self.assertRaisesRegex(OSError, "nobody.token"):
            self.client(token="nobody")


if __name__ == "__main__":
    unittest.main()
