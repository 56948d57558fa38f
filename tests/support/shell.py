"""The command line as an operator has it: each command a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys


class Shell:
    """Runs ``foedus`` in a folder, as an operator."""

    def __init__(self, folder, operator):
        self.folder = folder
        self.environment = {**os.environ, "FOEDUS_OPERATOR": str(operator)}

    async def run(self, *words, code=0):
        """(stdout, stderr) of a command that must exit with ``code``."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "foedus",
            *map(str, words),
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = (part.decode() for part in await process.communicate())
        assert process.returncode == code, (words, process.returncode, out, err)
        return out, err

    async def json(self, *words):
        """The data in the envelope."""
        out, _ = await self.run(*words, "--json")
        envelope = json.loads(out)
        assert (envelope["schema"], envelope["status"]) == (1, "ok")
        return envelope["data"]

    async def refused(self, code, error, *words):
        """An error: exit status, one sentence and a mend on stderr, the same in the envelope."""
        out, err = await self.run(*words, "--json", code=code)
        fault = json.loads(out)
        assert (fault["schema"], fault["status"], fault["error"]["code"]) == (1, "error", error)
        lines = err.splitlines()
        assert lines[0] == f"foedus: {fault['error']['message']}"
        assert "Traceback" not in err
        assert lines[1:] == ([f"        {fault['error']['hint']}"] if fault["error"]["hint"] else [])
        return fault["error"]
