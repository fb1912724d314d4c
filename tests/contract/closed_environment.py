"""Copied into an environment as ``sitecustomize``: calls for the network or a compiler are written down and refused."""

import os
import sys
from pathlib import Path

CALLS = os.environ.get("CLOSED_ENVIRONMENT_CALLS", os.devnull)
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "ninja", "ld", "false")
LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


def asked_for(event: str, arguments: tuple) -> str | None:
    """What an audit event asks for that is not there, in words."""
    if event in LOOKUPS:
        return f"the network: {event} {arguments[0]}"
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        return f"the network: {event} {arguments[1]}"
    if event == "subprocess.Popen":
        program = arguments[0] or arguments[1][0]
        name = Path(os.fsdecode(program)).name
        if name in COMPILERS:
            return f"a compiler: {name}"
    return None


def refuse(event: str, arguments: tuple) -> None:
    asked = asked_for(event, arguments)
    if asked is not None:
        with Path(CALLS).open("a", encoding="utf-8") as file:
            file.write(asked + "\n")
        raise OSError(f"no {asked}")


sys.addaudithook(refuse)
