"""What a suite file may say: its keys, their types and defaults, in pydantic's terms.

`mrp.suite_checks` checks what depends on more than one key, `mrp.config` reads the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

TASKS = Path(__file__).parent / "evaluation" / "tasks"  # one YAML file a task
GENERATED = ("mini_math", "mini_code")  # tasks whose data `mrp data` writes; the others are fetched

# Where a head comes from that has both a path and a recipe.
HeadsFrom = Literal["released", "train"]
HEADS_FROM: tuple[HeadsFrom, ...] = ("released", "train")


@dataclass(frozen=True)
class ModeShape:
    """What a grid entry of one mode must and may say (the same as its class in mrp.decoding).

    `lossless`: its text is static decoding's, token for token.
    """

    needs_head: bool
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    lossless: bool = False


MODES = {
    "static": ModeShape(False, optional=("steps", "cap")),
    "dynamic": ModeShape(False, required=("tau",)),
    "direct": ModeShape(True, required=("k",), optional=("scale", "shortlist", "prefix")),
    "speculative": ModeShape(
        True,
        required=("k",),
        optional=("scale", "shortlist", "cap", "prefix", "head_passes"),
        lossless=True,
    ),
    "self_speculative": ModeShape(False, required=("k",), optional=("cap",), lossless=True),
    "lattice": ModeShape(
        True,
        required=("k",),
        optional=(
            "window",
            "ahead",
            "budget",
            "scale",
            "shortlist",
            "cap",
            "prefix",
            "head_passes",
        ),
        lossless=True,
    ),
    "self_lattice": ModeShape(
        False, required=("k",), optional=("window", "ahead", "budget", "cap"), lossless=True
    ),
    "remask": ModeShape(
        True,
        required=("tau",),
        optional=("condition", "rule", "delta", "floor", "passes", "prefix"),
    ),
    "factor": ModeShape(False, required=("factor",)),
    "entropy": ModeShape(False, required=("gamma",)),
    "klass": ModeShape(False, required=("tau",), optional=("kl", "history")),
    "wino": ModeShape(False, required=("tau",), optional=("back",)),
    "freedave": ModeShape(False, required=("k", "tau")),
}
LOSSLESS = tuple(name for name, mode in MODES.items() if mode.lossless)
if TYPE_CHECKING:
    ModeName = str
else:
    ModeName = Literal[tuple(MODES)]  # a registry is no literal to a type checker
# All options in the order in which a job's id names them, each with what a mode does without it.
OPTIONS: dict[str, Any] = {
    "k": None,
    "steps": None,
    "tau": None,
    "factor": None,
    "gamma": None,
    "kl": 0.01,
    "history": 2,
    "back": 0.9,
    "scale": 1.0,
    "condition": "revealed",
    "rule": "confidence",
    "delta": 1.0,
    "floor": 0.0,
    "passes": "one",
    "window": 2,
    "ahead": False,
    "budget": 0,
    "head_passes": 0,
    "shortlist": 0,
    "cap": 1.0,
    "prefix": True,
}
AUTO_K = ("speculative", "self_speculative")  # the modes that may choose K themselves: k: auto
MOST_AUTO = 4  # drafts that they then make, as mrp.decoding has it

MOST_WHOLE = 999_999  # a job's id shows six digits
MOST_SEED = 2**63 - 1  # that torch takes

T = TypeVar("T")
# A single value stands for a list of one.
Listed = Annotated[
    list[T], BeforeValidator(lambda v: v if isinstance(v, list) else [v]), Field(min_length=1)
]


def _lookahead(value: Any) -> Any:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool)):
        if value != "auto" and value > MOST_WHOLE:
            raise PydanticCustomError("lookahead", f"Input should be at most {MOST_WHOLE}")
        return value
    raise PydanticCustomError("lookahead", "Input should be a valid integer, or auto")


K = Annotated[Any, AfterValidator(_lookahead)]
Whole = Annotated[int, Field(le=MOST_WHOLE)]
# Names become parts of job ids and of folder names.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Count = Annotated[int, Field(ge=1, le=MOST_WHOLE)]
LEAST_CAP = 1e-6  # the odds against a lower one can be infinite, which says: not masked
MOST_WINDOW = 6  # of lattice decoding, as mrp.decoding has it
MOST_DRAFTS = 6  # of the same with a budget
MOST_JOBS = 16  # on one GPU: each has its own context of half a GiB
MOST_PROBLEMS = 10_000  # of a generated test set: seconds to draw, and more tell nothing new


class Strict(BaseModel):
    """No unknown keys, no conversions ("3" is no number), no changes after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class BackboneSpec(Strict):
    """Where a backbone comes from.

    `path` is a directory or a hub id ("owner/name", "owner/name@revision") and is used where it is
    given; `train` is its recipe.
    """

    path: str | None = None
    train: dict[str, Any] | None = None


class HeadSpec(Strict):
    """A head, likewise; its `path` may hold {backbone}, the backbone's name in the suite.

    `seed_of` names the head of which this is a repetition with another seed: the reports show the
    spread between the two, and not a second head.
    """

    variant: Literal["default", "k2", "direct"]
    path: str | None = None
    train: dict[str, Any] | None = None
    seed_of: str | None = None

    def source(self, heads: HeadsFrom = "released") -> Literal["released", "trained"]:
        """How a record calls it: "released" (found at `path`) or "trained" (by the workflow).

        With heads "train" a recipe goes before a path; a head without a recipe stays released.
        """
        trains = self.path is None or (heads == "train" and self.train is not None)
        return "trained" if trains else "released"


class DataSpec(Strict):
    """The tasks' data.

    `level` (difficulty) and `test` (problems in each test set) are of the generated tasks.
    `benchmarks` is the directory of the others: `<task>.jsonl` each, as `mrp fetch` writes it.
    """

    level: Literal["embedded", "hard", "replica"] = "embedded"
    test: Annotated[int, Field(ge=1, le=MOST_PROBLEMS)] = 128
    benchmarks: Annotated[str, Field(min_length=1)] = "data/benchmarks"

    def generated(self) -> dict[str, Any]:
        """What decides the generated files."""
        return self.model_dump(include={"level", "test"})


Dtype = Literal["float32", "bfloat16", "float16"]


class SpeedSpec(Strict):
    """The paired time measurement of each job; in another precision than the answers if it says so.

    Answers in float32 can be compared token for token; times are wanted in what one would use.
    """

    prompts: Count = 16
    batch_size: Count = 16
    repeats: Count = 3
    dtype: Dtype | None = None


class DecodingSpec(Strict):
    """What all decode jobs share.

    Without `speed` no times are measured. The block length is the backbones' own; `block_size` says
    what it has to be, where the experiment is about one. `invariant` answers with products whose
    rows do not depend on each other, so that lossless modes equal static to the last near tie.
    """

    batch_size: Count = 32
    max_new_tokens: Count = 112
    dtype: Dtype = "float32"
    invariant: bool = False
    block_size: Count | None = None
    speed: SpeedSpec | None = None


class GridEntry(Strict):
    """Cells of the grid: the lists multiply. Without `backbone` they are those of all backbones."""

    backbone: Listed[str] | None = None
    mode: ModeName
    head: Listed[str] | None = None
    k: Listed[K] | None = None
    steps: Listed[Whole] | None = None
    tau: Listed[float] | None = None
    factor: Listed[float] | None = None
    gamma: Listed[float] | None = None
    kl: Listed[float] | None = None
    history: Listed[Whole] | None = None
    back: Listed[float] | None = None
    scale: Listed[float] | None = None
    condition: Listed[Literal["revealed", "masked"]] | None = None
    rule: Listed[Literal["confidence", "residual"]] | None = None
    delta: Listed[float] | None = None
    floor: Listed[float] | None = None
    passes: Listed[Literal["one", "halves"]] | None = None
    shortlist: Listed[Whole] | None = None
    cap: Listed[float] | None = None
    window: Listed[Whole] | None = None
    ahead: Listed[bool] | None = None
    budget: Listed[Whole] | None = None
    head_passes: Listed[Whole] | None = None
    prefix: Listed[bool] | None = None


class Suite(Strict):
    """A whole experiment: what is decoded, by which models, in which ways.

    `jobs_per_gpu` is how many workflow jobs share a GPU: more than one pays where the models are so
    small that a job's start takes longer than its decoding.
    """

    name: Name
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    jobs_per_gpu: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 1
    backbones: Annotated[dict[Name, BackboneSpec], Field(min_length=1)]
    heads: dict[Name, HeadSpec] = {}
    tasks: Annotated[list[Listed[Name]], Field(min_length=1)]
    data: DataSpec = DataSpec()
    decoding: DecodingSpec = DecodingSpec()
    grid: Annotated[list[GridEntry], Field(min_length=1)]
