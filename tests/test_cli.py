"""The command line: complete help, quick start, and one line in place of a traceback."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mrp import cli
from mrp.commands import load_commands
from mrp.errors import UserError

COMMANDS = [command.NAME for command in load_commands()]


def mrp(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mrp.cli", *arguments], capture_output=True, text=True
    )


def test_help_names_every_command_and_an_example() -> None:
    text = mrp("--help").stdout
    for command in load_commands():
        assert command.NAME in text
        assert "\n" not in command.HELP
    assert "examples:" in text


def test_the_commands_are_exactly_these() -> None:
    """A new command or a new name is a decision: it shows here."""
    assert COMMANDS == [
        "grid",
        "status",
        "data",
        "train-backbone",
        "train-head",
        "decode",
        "report",
        "compare",
        "fetch",
        "export",
        "pack",
        "unpack",
        "score",
        "eval",
        "tune",
        "bench",
        "generate",
        "version",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert "--threads" in capsys.readouterr().out
    groups = [a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    for action in groups[0].choices[name]._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action.dest


def test_nothing_heavy_is_imported_for_the_help() -> None:
    code = (
        "import sys; from mrp.cli import build_parser; build_parser().format_help();"
        "print(*(m for m in ('torch','numpy','pandas','lm_eval','transformers','pydantic','yaml')"
        " if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


class Failing:
    """A command that fails as told."""

    NAME, HELP = "fail", "fail"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        pass

    def run(self, args: argparse.Namespace) -> None:
        raise self.error


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


BROKEN = SyntaxError("invalid syntax", ("modes/mine.py", 3, 1, "def x(:"))


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("head: there is none"), 2, "mrp: error: head: there is none"),
        (OutOfMemoryError("CUDA out of memory. Tried"), 1, "mrp: error: out of memory: lower"),
        (MemoryError(), 1, "mrp: error: out of memory: lower"),
        (SyntaxError("null bytes"), 2, "test_cli.py, line"),
        (
            ImportError("No module named 'rich'"),
            2,
            "No module named 'rich': correct the import, or",
        ),
        (BROKEN, 2, "error: modes/mine.py: no valid Python at line 3: invalid syntax: correct it"),
        (RuntimeError("DefaultCPUAllocator: can't allocate"), 1, "error: out of memory: lower"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), 1, "error: a/b: no space left"),
        (
            PermissionError(errno.EACCES, "Permission denied", "c"),
            2,
            "c: permission denied; change",
        ),
        (KeyboardInterrupt(), 130, "mrp: interrupted"),
    ],
)
def test_failures_are_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    monkeypatch.setattr(cli, "load_commands", lambda: [Failing(error)])
    assert cli.main(["fail"]) == code
    printed = capsys.readouterr().err
    assert line in printed
    assert printed.count("\n") == 1


def test_bugs_and_debug_show_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "load_commands", lambda: [Failing(ValueError("a bug"))])
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["fail"])
    monkeypatch.setattr(cli, "load_commands", lambda: [Failing(UserError("a mistake"))])
    with pytest.raises(UserError):
        cli.main(["fail", "--debug"])


MINE = Path(cli.__file__).parent / "decoding/modes/mine.py"
UNFINISHED = {
    "x = 1\nMODES = (Mine,)": (2, "name 'Mine' is not defined: import or define it there"),
    "class Mine:\n  pass\n{m.name: m for m in (Mine,)}": (3, "'name': correct it"),
    # Raised by the library, for a line of the file.
    "import dataclasses as d\n@d.dataclass\nclass Mine:\n  a: int = 1\n  b: int": (
        2,
        ": correct it",
    ),
    "def f():\n  return\nf(1)": (3, "takes 0 positional arguments but 1 was given: correct it"),
}


@pytest.mark.parametrize("source", UNFINISHED)
def test_a_file_that_cannot_be_imported_is_one_line(source: str) -> None:
    """A mode, task or registry line of the user's own."""
    line, said = UNFINISHED[source]
    with pytest.raises((NameError, AttributeError, TypeError)) as caught:
        exec(compile(source, str(MINE), "exec"), {})
    text, code = cli.explain(caught.value)
    assert code == 2
    assert text is not None
    assert text.startswith(f"{MINE}, line {line}: ")
    assert text.endswith(said)
    with pytest.raises((NameError, AttributeError, TypeError)) as caught:
        exec(compile(source, "elsewhere/mine.py", "exec"), {})
    assert cli.explain(caught.value) == (None, 1)


def test_a_name_that_lacks_in_a_round_is_one_line_and_a_bug_is_none() -> None:
    found: dict[str, Any] = {}
    source = "def round():\n  torch.arange(3)\ndef bug():\n  return {}[3]"
    exec(compile(source, str(MINE), "exec"), found)
    with pytest.raises(NameError) as caught:
        found["round"]()
    line = f"{MINE}, line 2: name 'torch' is not defined: import or define it there"
    assert cli.explain(caught.value) == (line, 2)
    with pytest.raises(KeyError) as other:
        found["bug"]()
    assert cli.explain(other.value) == (None, 1)


def test_a_registry_line_without_its_import_is_one_line(tmp_path: Path) -> None:
    package = Path(cli.__file__).parent
    copy = tmp_path / "mrp"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    registry = copy / "decoding/modes/__init__.py"
    text = registry.read_text("utf-8")
    registry.write_text(
        text.replace("        Static,\n", "        Static,\n        Mine,\n"), "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mrp.cli", "generate", "x"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{registry}, line " in done.stderr
    assert "name 'Mine' is not defined: import or define it there" in done.stderr


BENCH = ["bench", "--shape", "tiny", "--device", "cpu"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["data", "--suite", "embeded", "--out", "x"], "did you mean embedded?"),
        (["grid", "--suite", "nowhere/at/all.yaml"], "no file nowhere/at/all.yaml"),
        (["data", "--suite", "embedded"], "--out"),
        (["grid", "--threads", "0"], "'0' is no whole number of at least 1"),
        (["generate", "  "], "prompt: it is empty"),
        (["generate", "--delta", "1", "--mode", "remask", "x"], "--delta: only --rule residual"),
        (["generate", "--head-variant", "k2", "x"], "--head-variant: says how --head was trained"),
        (["pack", "--suite", "micro", "--heads", "train"], "are of --records DIR"),
        (["pack", "--suite", "micro", "--command", "x"], "are of --records DIR"),
        ([*BENCH, "--batch", "1" + "0" * 20], "at least 1, at most 999999"),
        ([*BENCH, "--prompt-length", "1" + "0" * 20], "0: at least 1, at most 999999"),
        ([*BENCH, "--bandwidth", "0"], "--bandwidth 0.0: above 0 and finite"),
        ([*BENCH, "--teraflops", "nan"], "--teraflops nan: above 0 and finite"),
        ([*BENCH, "--mode", "dynamic,tau=.5,tau=.6"], "tau is given twice"),
        (
            [*BENCH, "--mode", "wino,tau=.5", "--mode", "wino,tau=.5"],
            "'wino,tau=.5' is given twice",
        ),
        ([*BENCH, "--mode", "dynamic,tau=much"], "tau='much' must be a number"),
        ([*BENCH, "--divergence"], "--divergence: no mode to compare"),
        ([*BENCH, "--prompts", "x"], "--prompts: goes with --backbone DIR"),
        ([*BENCH, "--head", "x"], "--head: goes with --backbone DIR"),
        ([*BENCH, "--head-variant", "k2"], "--head-variant: says how"),
        ([*BENCH, "--out", "mrp"], "--out mrp: is a folder: name a file"),
        (["eval", "--tasks", "mini_math,mini_math"], "a task is given twice"),
        (["eval", "--speed-prompts", "-1"], "--speed-prompts -1"),
        (["data", "--suite", "micro", "--out", "Snakefile"], "Snakefile: file exists; a folder"),
        (["data", "--suite", "micro", "--out", "Snakefile/x"], "not a directory; a folder"),
        (["data", "--suite", "micro", "--out", ""], "--out: '' is an empty path: give one"),
        (["data", "--suite", "micro", "--out="], "--out: '' is an empty path"),
        (["eval", "--out", " "], "--out: ' ' is an empty path"),
        (["generate", "--head", "", "x"], "--head: '' is an empty path"),
        (["unpack", ""], "FILE: '' is an empty path"),
        (["compare", "", "x"], "before: '' is an empty path"),
        ([*BENCH, "--head", ""], "--head: '' is an empty path"),
        (["report", "tables", "--records", ""], "--records: '' is an empty path"),
        (["gird"], "invalid choice: 'gird'"),
        ([], "required: COMMAND"),
    ],
)
def test_bad_arguments_end_with_code_2_and_no_traceback(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = cli.main(arguments)
    except SystemExit as end:  # argparse's own
        code = end.code
    assert code == 2
    printed = capsys.readouterr().err
    assert line in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_takes_an_empty_path(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option that is called a path in the help, or is one."""
    (commands,) = (a for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    parsers = [commands.choices[name]]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            elif action.type is Path or action.metavar in cli.PATHS:
                with pytest.raises(SystemExit):
                    parser.parse_args([*action.option_strings[:1], ""])
                assert "'' is an empty path" in capsys.readouterr().err


def test_grid_lists_the_jobs_and_bears_a_closed_pipe() -> None:
    lines = mrp("grid", "--suite", "micro").stdout.splitlines()
    assert all(line.startswith(("open ", "done ")) for line in lines)
    assert lines[0].endswith(" S.mini.static")
    command = f"{sys.executable} -m mrp.cli grid --suite embedded | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_no_standard_output_at_all_is_no_failure() -> None:
    command = f"{sys.executable} -m mrp.cli grid --suite micro >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_reach_the_libraries() -> None:
    code = (
        "import sys; from mrp import cli; sys.argv[1:] = []; cli.main(['version','--threads','1']);"
        "import torch; print(torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].startswith("mrp ")
    assert done.stdout.splitlines()[-1] == "1"


def test_a_prompt_that_is_no_utf8_is_one_line() -> None:
    command = [sys.executable, "-m", "mrp.cli", "generate", "-"]
    done = subprocess.run(command, input=b"\xff\xfe", capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(b"mrp: error: prompt: no UTF-8")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "runs/x: no space left", 1),
        (OSError(errno.EACCES, "Permission denied", "a/b"), "a/b: permission denied; change", 2),
        (OSError(errno.EISDIR, "Is a directory", "a/b"), "a/b: is a directory; a file", 2),
    ],
)
def test_failures_of_the_system_name_the_place(error: OSError, line: str, code: int) -> None:
    said, exit_code = cli.explain(error, Path("runs/x"))
    assert said is not None
    assert said.startswith(line)
    assert exit_code == code
