"""What the last stage of a target in a Dockerfile says of how its image is run."""

import json
import re
import shlex

from container import Image


def instructions(path):
    """(word, argument) of each instruction, lines that go on joined, comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, argument = line.strip().partition(" ")
            yield word.upper(), argument.strip()


def stage(path, target):
    current = None
    for word, argument in instructions(path):
        if word == "FROM":
            current = argument.split(" AS ")[-1] if " AS " in argument else None
        elif current == target:
            yield word, argument


def pairs(argument):
    return dict(part.split("=", 1) for part in shlex.split(argument))


def exec_form(word, argument):
    """Words of the JSON form: what is no list would be run by a shell, which the image does not have."""
    try:
        words = json.loads(argument)
    except json.JSONDecodeError as error:
        raise SystemExit(f"Dockerfile: {word} {argument}: not in exec form, [\"...\"]") from error
    return words


def image_of(path, target, root):
    image = Image(root=root)
    for word, argument in stage(path, target):
        if word == "USER":
            image.user = argument
        elif word == "ENTRYPOINT":
            image.entrypoint = exec_form(word, argument)
        elif word == "CMD":
            image.command = exec_form(word, argument)
        elif word == "HEALTHCHECK" and argument != "NONE":
            image.healthcheck = exec_form(word, argument.split("CMD", 1)[1].strip())
        elif word == "ENV":
            image.environment.update(pairs(argument))
        elif word == "LABEL":
            image.labels.update(pairs(argument))
        elif word == "VOLUME":
            image.volumes.append(argument)
        elif word == "EXPOSE":
            image.ports += [int(port) for port in argument.split()]
    return image
