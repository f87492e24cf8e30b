"""The help pages: every option is explained, and every example is understood."""

import shlex

import click
import pytest

from mssl.cli import commands


def every_command(group=commands, path=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


COMMANDS = dict(every_command())


def examples(command):
    text = f"{command.help or ''}\n{command.epilog or ''}".replace("\b", "").replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip().startswith("mssl ")]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_examples_are_understood(path):
    assert examples(COMMANDS[path])
    for line in examples(COMMANDS[path]):
        words = shlex.split(line.split("|")[0])[1:]
        known = next(command for command in (tuple(words[:2]), tuple(words[:1])) if command in COMMANDS)
        COMMANDS[known].make_context(" ".join(known), words[len(known) :])  # raises where an option is not known


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_options_are_explained(path):
    for parameter in COMMANDS[path].params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name
