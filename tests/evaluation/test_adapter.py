from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

import mrp.evaluation.adapter as adapter
from mrp.data import build_tokenizer
from mrp.decoding import COUNTERS, Decoded, Trace, decode, engine, make_mode
from mrp.decoding.session import Session
from mrp.errors import UserError
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.requests import find_stop, parse_settings, raw_text
from mrp.evaluation.tasks import TASKS_DIR
from tests.evaluation.conftest import MODES, LmEval

PROMPTS = ["(1+2)?", "x", "a much longer prompt, over several blocks", "7*8", "(1+2)?"]
GREEDY: dict[str, Any] = {"until": [], "do_sample": False}


def instances(texts: list[str], settings: dict[str, Any], task: str = "t") -> list[Instance]:
    return [
        Instance("generate_until", {}, (text, settings), 0, metadata=(task, number, 1))
        for number, text in enumerate(texts)
    ]


@pytest.mark.parametrize(("mode", "options"), MODES)
def test_answers_are_those_of_direct_decoding(
    backbone_dir: Path, head_dir: Path, mode: str, options: dict[str, Any]
) -> None:
    made = make_mode(mode, **options)
    head = head_dir if made.needs_head else None
    model = MRPModel(backbone_dir, head, mode, batch_size=2, device="cpu", **options)
    texts = model.generate_until(instances(PROMPTS, {**GREEDY, "max_gen_toks": 20}))
    for number, prompt in enumerate(PROMPTS):
        (alone,) = decode(model.backbone, model.head, [model.encode(prompt)], made, 20)
        outcome = model.outcomes["t", number]
        assert outcome.decoded.ids == alone.ids
        assert outcome.decoded.counts == alone.counts
        assert outcome.decoded.trace == alone.trace
        raw = raw_text(model.tokenizer, alone.ids)
        for special in model.tokenizer.all_special_tokens:
            raw = raw.replace(special, "")
        assert texts[number] == raw


def test_decoding_is_prepared_on_its_seat_before_the_device_is_used(
    model: MRPModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for all from the start, whatever their lengths: nothing is made anew later."""
    steps: list[str] = []

    @contextmanager
    def noted(what: str) -> Iterator[None]:
        steps.append(what)
        yield
        steps.append(f"{what} ends")

    class Noted(Session):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            steps.append(f"prepare {args[2]} x {args[3]}")
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(adapter, "seated", lambda: noted("sit"))
    monkeypatch.setattr(adapter, "working", lambda: noted("work"))
    monkeypatch.setattr(engine, "Session", Noted)
    size = model.backbone.config.block_size
    asked = instances(["(1+2)?"], {**GREEDY, "max_gen_toks": 5 * size})
    asked += instances(["7*8" * size], {**GREEDY, "max_gen_toks": size}, task="other")
    needed = max(
        len(each.prompt) + each.max_new_tokens for each in (model.request(*i.args) for i in asked)
    )
    model.generate_until(asked)
    length = -(-needed // size) * size
    assert steps == ["sit", f"prepare 2 x {length}", "work", "work ends", "sit ends"]


def test_every_request_has_its_own_length(model: MRPModel) -> None:
    asked = instances(PROMPTS[:1], {**GREEDY, "max_gen_toks": 3})
    asked += instances(PROMPTS[1:2], GREEDY, task="other")
    model.generate_until(asked)
    assert model.outcomes["t", 0].decoded.counts["answer_tokens"] <= 3
    assert model.outcomes["other", 0].decoded.counts["answer_tokens"] > 3


def test_answers_come_from_the_journal_on_a_second_run(backbone_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    settings = {**GREEDY, "max_gen_toks": 12}
    answers, seconds = [], []
    for _ in range(2):
        model = MRPModel(backbone_dir, device="cpu", journal=path)
        answers.append(model.generate_until(instances(PROMPTS, settings)))
        seconds.append(model.seconds)
        assert model.journal is not None
        model.journal.close()
    assert answers[0] == answers[1]
    assert model.resumed_from == len(set(PROMPTS))  # equal requests are decoded once
    assert seconds[0] == pytest.approx(seconds[1])


def scripted(text: str, block: int = 8) -> Any:
    """A decoder that answers every prompt with `text`, block by block, asking `stop`."""

    def fake(
        backbone: Any, head: Any, prompts: Any, mode: Any, budgets: Any, **kw: Any
    ) -> Iterator[Decoded]:
        for index, prompt in enumerate(prompts):
            ids = [fake.vocabulary[c] for c in text]  # type: ignore[attr-defined]
            end = len(ids)
            for end in range(block, len(ids) + block, block):
                if kw["stop"] is not None and kw["stop"](index, ids[:end]):
                    break
            counts = dict.fromkeys(COUNTERS, 0) | {"generated": end, "answer_tokens": end}
            counts |= dict.fromkeys(("denoise", "verify"), len(prompt))
            yield Decoded(index, ids[:end], True, counts, Trace(ids[:end], [], [], []))

    return fake


@pytest.mark.parametrize(
    ("text", "until", "answer"),
    [
        # A blank line does not end a chat answer unless a task says so.
        ("Step 1.\n\nThe answer is 7", [], "Step 1.\n\nThe answer is 7"),
        # The whole stop string counts, never its first token or letter.
        ("Identify the Question first. #5", ["Question:"], "Identify the Question first. #5"),
        ("a cab in a bc", "abc", "a cab in a bc"),
        ("one abc two", "abc", "one "),
        # The earliest of several; one that spans blocks; one at the very start.
        ("a.b;c", [";", "."], "a"),
        ("123456STOP78", ["STOP"], "123456"),
        ("#!rest", ["#"], ""),
        ("keep all", ["", "x"], "keep all"),
    ],
)
def test_stop_strings(
    model: MRPModel, monkeypatch: pytest.MonkeyPatch, text: str, until: Any, answer: str
) -> None:
    fake = scripted(text)
    fake.vocabulary = model.tokenizer.get_vocab()
    monkeypatch.setattr(adapter, "decode", fake)
    assert model.generate_until(instances(["q"], {**GREEDY, "until": until})) == [answer]


def test_decoding_ends_at_the_block_with_the_stop_string(model: MRPModel) -> None:
    model.generate_until(instances(["(1+2)?"], GREEDY))
    whole = model.outcomes["t", 0].decoded
    text = raw_text(model.tokenizer, whole.ids)
    stop = text[3:5]
    place = find_stop(text, [stop])
    assert place is not None
    (cut,) = model.generate_until(instances(["(1+2)?"], {**GREEDY, "until": [stop]}))
    assert cut == text[:place]
    stopped = model.outcomes["t", 0].decoded
    assert stopped.finished
    assert len(stopped.trace.ids) < len(whole.trace.ids)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_sample": False, "temperature": 0.7},
        {"do_sample": True, "temperature": 0.0},
        {"do_sample": True, "temperature": 1.0, "top_k": 1},
        {"temperature": 0},
        {},
    ],
)
def test_greedy_settings(settings: dict[str, Any]) -> None:
    assert parse_settings(settings, 5) == ([], 5)


@pytest.mark.parametrize(
    "settings", [{"do_sample": True}, {"temperature": 0.7}, {"do_sample": True, "temperature": 1.0}]
)
def test_sampling_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="greedy only"):
        parse_settings(settings, 5)


def test_lengths_by_their_other_names() -> None:
    assert parse_settings({"max_tokens": 7}, 5)[1] == 7
    assert parse_settings({"max_gen_toks": 6, "max_tokens": 7}, 5)[1] == 6
    with pytest.raises(UserError, match="max_gen_toks is 0"):
        parse_settings({"max_gen_toks": 0}, 5)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(UserError, match="'num_beams' is unknown: allowed are"):
        parse_settings({"num_beams": 4}, 5)
    with pytest.raises(UserError, match="'until' holds 5"):
        parse_settings({"until": [5]}, 5)


def test_a_backslash_n_is_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse_settings({"until": [r"\n"]}, 5)
    assert "not a line break" in caplog.text


def test_likelihoods_are_refused(model: MRPModel) -> None:
    for method in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(UserError, match="generate_until"):
            method([])


def test_lm_eval_response_cache_is_refused(model: MRPModel, tmp_path: Path) -> None:
    from lm_eval.api.model import CachingLM

    with pytest.raises(UserError, match="--use_cache"):
        CachingLM(model, str(tmp_path / "cache.db"))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("x" * 500, "max_position_embeddings = 512"),
        ("fill <|mask|> in", "contains the mask token '<|mask|>'"),
        ("", "is empty"),
    ],
)
def test_bad_prompts(model: MRPModel, prompt: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("|", r"\|")):
        model.generate_until(instances([prompt], GREEDY))


def test_unknown_characters_are_pointed_out(
    model: MRPModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.generate_until(instances(["cafe", "caf\u00e9"], GREEDY))
    assert "1 of 2 prompts hold characters" in caplog.text
    assert "'\u00e9'" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "magic"}, "magic"),
        ({"mode": "static", "k": 3}, "takes no option 'k'"),
        ({"mode": "speculative", "k": 3}, "needs a head"),
        ({"mode": "static", "head": "somewhere"}, "uses no head"),
        ({"dtype": "int8"}, "dtype 'int8' is unknown"),
        ({"device": "gpu"}, "device 'gpu' is not here: choose one of auto, cpu"),
        ({"backbone": "nowhere"}, "nowhere: no checkpoint here"),
    ],
)
def test_bad_models(backbone_dir: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MRPModel(**{"backbone": backbone_dir, "device": "cpu", **arguments})


def test_a_missing_or_damaged_tokenizer_is_named(backbone_dir: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((backbone_dir / name).read_bytes())
    with pytest.raises(UserError, match="no tokenizer here"):
        MRPModel(tmp_path, device="cpu")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="the tokenizer does not load"):
        MRPModel(tmp_path, device="cpu")
    build_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(UserError, match="chat template does not take the messages"):
        MRPModel(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("token", "token_id", "message"),
    [("3", 300, "token ids up to 300"), ("<|mask|>", 127, "mask token is 127")],
)
def test_a_tokenizer_of_another_vocabulary_is_refused(
    backbone_dir: Path, tmp_path: Path, token: str, token_id: int, message: str
) -> None:
    shutil.copytree(backbone_dir, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"][token] = token_id
    for added in content["added_tokens"]:
        added["id"] = content["model"]["vocab"][added["content"]]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        MRPModel(tmp_path, device="cpu")


def test_a_damaged_entry_of_the_journal_is_named(backbone_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for _ in range(2):
        model = MRPModel(backbone_dir, max_new_tokens=8, device="cpu", journal=path)
        key = model.request("ab", GREEDY).key
        assert model.journal is not None
        if key in model.journal.entries:
            with pytest.raises(UserError, match=f"journal.jsonl: the entry {key} is damaged"):
                model.generate_until(instances(["ab"], GREEDY))
        else:
            model.journal.append(key, {"ids": [1]})
        model.journal.close()


def test_chat_template(model: MRPModel) -> None:
    history = [{"role": "user", "content": "1+2"}]
    assert model.apply_chat_template(history) == "<|user|>1+2<|im_end|><|assistant|>"
    prefilled = [*history, {"role": "assistant", "content": "3"}]
    rendered = model.apply_chat_template(prefilled, add_generation_prompt=False)
    assert rendered == "<|user|>1+2<|im_end|><|assistant|>3"
    assert "/" not in model.tokenizer_name
    assert model.chat_template(True) == model.tokenizer.chat_template
    assert model.chat_template(False) is None


def test_lm_eval_finds_model_and_tasks_by_name(backbone_dir: Path, head_dir: Path) -> None:
    """What `lm_eval --model mrp --model_args ... --include_path ...` does."""
    results = simple_evaluate(
        model="mrp",
        model_args=f"backbone={backbone_dir},head={head_dir},mode=speculative,k=3",
        tasks=["mini_math"],
        batch_size=4,
        device="cpu",
        limit=2,
        bootstrap_iters=0,
        apply_chat_template=True,
        gen_kwargs="max_gen_toks=8",
        task_manager=TaskManager(include_path=str(TASKS_DIR), include_defaults=False),
    )
    assert results["n-samples"]["mini_math"]["effective"] == 2
    assert 0.0 <= results["results"]["mini_math"]["acc,none"] <= 1.0
    for sample in results["samples"]["mini_math"]:
        prompt, settings = sample["arguments"][0]
        assert prompt == f"<|user|>{sample['doc']['prompt']}<|im_end|><|assistant|>"
        assert settings["until"] == []


def test_its_own_lm_eval_command_line(backbone_dir: Path, lm_eval_command: LmEval) -> None:
    """Our tasks need no --include_path there, and a mistake is one line."""
    words = ["--tasks", "mini_math", "--limit", "1", "--gen_kwargs", "max_gen_toks=4"]
    arguments = f"backbone={backbone_dir},mode=dynamic,tau="
    code, out, _ = lm_eval_command(
        *words, "--model_args", arguments + "0.5", "--apply_chat_template"
    )
    assert code == 0
    assert "|mini_math|" in out
    code, _, err = lm_eval_command(*words, "--model_args", arguments + "1.5")
    assert code == 2
    assert err.splitlines()[-1].startswith("mrp: error: mode 'dynamic': tau=1.5")


@pytest.mark.slow
def test_its_own_lm_eval_command_line_as_a_process(backbone_dir: Path) -> None:
    """With all the tasks that lm-eval brings, which it reads for ten seconds."""
    words = "--tasks mini_math --limit 1 --gen_kwargs max_gen_toks=4 --device cpu --model mrp"
    command = [sys.executable, "-m", "mrp.evaluation", "run", *words.split()]
    command += ["--model_args", f"backbone={backbone_dir}", "--apply_chat_template"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "|mini_math|" in done.stdout
