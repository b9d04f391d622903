"""The figures: all formats, the numbers beside them, legible labels, the same twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mrp.grid import FIGURES
from mrp.report import style
from mrp.report.curves import curve_name, curves, knob_of, places
from mrp.report.figures import DRAWERS, write_figures
from mrp.report.figures.acceptance import acceptance
from mrp.report.figures.depth import depth
from mrp.report.figures.headline import headline
from mrp.report.figures.lookahead import lookahead
from mrp.report.figures.pareto import frontier, pareto_time
from mrp.report.figures.parts import Drawing
from mrp.report.figures.remask import remask
from mrp.schema import LOSSLESS
from tests.report.conftest import FAILED
from tests.report.frames import DEPTHS, SEEDS, TASKS, replica

RESIDUAL = "residual"
UNKNOWN = ("unheard_of", "brand_new")
POINTS = tuple(name for name in FIGURES if name not in ("headline", "depth"))


@pytest.fixture(scope="module")
def out(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("figures")
    write_figures(rows, directory)
    return directory


@pytest.fixture(scope="module")
def large() -> pd.DataFrame:
    table = replica(UNKNOWN)
    return table[table["backbone"] != "L"]


@pytest.fixture(scope="module")
def drawings(large: pd.DataFrame) -> dict[str, Drawing]:
    with style.styled():
        return {name: draw(large) for name, draw in DRAWERS.items() if name != "pareto_time"}


@pytest.fixture(autouse=True)
def _let_go(drawings: dict[str, Drawing]) -> Iterator[None]:
    """Of a test's own figures, which pyplot would keep."""
    shared = set(plt.get_fignums())
    yield
    for number in set(plt.get_fignums()) - shared:
        plt.close(number)


def texts(drawing: Drawing) -> list[str]:
    """All that is written inside panels."""
    return [text.get_text() for axes in drawing.figure.axes for text in axes.texts]


def note(drawing: Drawing) -> str:
    """The lines above the legend, as one."""
    return " ".join(drawing.figure.legends[0].get_title().get_text().split())


def legend(drawing: Drawing) -> list[str]:
    return [text.get_text() for text in drawing.figure.legends[0].get_texts()]


# ---- the files -----------------------------------------------------------------------------------


def test_the_grid_knows_every_figure() -> None:
    assert tuple(DRAWERS) == FIGURES


def test_every_format_is_there(out: Path) -> None:
    expected = {f"{name}.{form}" for name in FIGURES for form in ("pdf", "png", "svg", "csv")}
    assert {file.name for file in out.iterdir()} == expected


def test_same_records_same_bytes(
    rows: pd.DataFrame, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in set(FIGURES) - {"pareto", "acceptance"}:
        monkeypatch.delitem(DRAWERS, name)
    files = write_figures(rows.copy(), tmp_path)
    assert len(files) == 8
    for file in files:
        assert file.read_bytes() == (out / file.name).read_bytes(), file.name


def test_the_layouts_last_digits_are_cut(drawings: dict[str, Drawing]) -> None:
    """They depend on the order of the solver's hash tables, that is on the process."""
    figure = drawings["depth"].figure
    with style.styled():
        style.freeze(figure)
    for axes in figure.axes:
        ends = axes.get_position().get_points()
        assert (ends == ends.round(6)).all()


def test_fonts_are_inside_and_dates_are_not(out: Path) -> None:
    for name in FIGURES:
        pdf = (out / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"CreationDate" not in pdf
        svg = (out / f"{name}.svg").read_text("utf-8")
        assert "<dc:date>" not in svg
        assert "<text" not in svg  # glyphs are outlines


def test_the_csv_holds_the_records_numbers(rows: pd.DataFrame, out: Path) -> None:
    known = rows.set_index(["job", "task"])
    for name in POINTS:
        numbers = pd.read_csv(out / f"{name}.csv")
        assert len(numbers) > 15, name
        assert FAILED not in set(numbers["job"])
        for _, row in numbers.iterrows():
            source = known.loc[(row["job"], row["task"])]
            for measure in ("accuracy", "tpf", "time_ratio"):
                assert row[measure] == pytest.approx(source[measure], rel=1e-5, nan_ok=True)


def test_a_figure_without_runs_says_why(rows: pd.DataFrame) -> None:
    static = rows[rows["mode"] == "static"].assign(time_ratio=float("nan"))
    reasons = {
        pareto_time: "No times were measured",
        remask: "no remask runs",
        acceptance: "No run of this suite drafted",
        depth: "no heads of one kind that differ in depth",
    }
    with style.styled():
        for draw, reason in reasons.items():
            drawing = draw(static)
            assert reason in " ".join(texts(drawing)[0].split())
            assert reason in drawing.numbers["note"].iloc[0]


def test_panels_without_records_say_so(rows: pd.DataFrame) -> None:
    empty = rows[rows["mode"] == "static"].assign(status="not run")
    with style.styled():
        drawing = lookahead(empty)
    assert texts(drawing) == ["no records"] * len(TASKS)
    assert drawing.numbers.empty


# ---- how things look -----------------------------------------------------------------------------


def test_no_two_modes_look_alike() -> None:
    modes = [*style.LOOKS, *UNKNOWN, "another"]
    looks = style.looks(modes)
    assert len({look.colour for look in looks.values()}) == len(modes)
    assert len({look.marker for look in style.LOOKS.values()}) == len(style.LOOKS)
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(modes)
    known = {look.marker for look in style.LOOKS.values()}
    assert all(looks[mode].marker not in known for mode in UNKNOWN)
    assert style.looks(reversed(modes))["another"] == looks["another"]


def test_small_text_has_contrast() -> None:
    colours = [look.colour for look in (*style.LOOKS.values(), *style.SPARE)]
    for colour in (*colours, "#ffffff"):
        assert style._contrast_to_white(style.to_rgb(style.for_text(colour))) >= 4.5
    assert style.for_text("#000000") == "#000000"


def test_figures_are_a_column_or_a_page_wide(
    large: pd.DataFrame, drawings: dict[str, Drawing]
) -> None:
    one = large[(large["backbone"] == "S") & (large["task"] == "mini_math")]
    with style.styled():
        assert remask(one).figure.get_figwidth() == style.COLUMN
    assert {drawing.figure.get_figwidth() for drawing in drawings.values()} == {style.FULL}


@pytest.mark.parametrize("name", ["pareto", "headline", "acceptance"])
def test_no_label_covers_another(drawings: dict[str, Drawing], name: str) -> None:
    figure = drawings[name].figure
    with style.styled():
        style.freeze(figure)
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        page = figure.bbox.padded(1)
        for axes in figure.axes:
            found = [text.get_window_extent(renderer).padded(-0.7) for text in axes.texts]
            assert len(found) > 0
            assert not any(one.overlaps(two) for one, two in itertools.combinations(found, 2))
            assert all(page.contains(*corner) for box in found for corner in box.get_points())


# ---- what is drawn -------------------------------------------------------------------------------


def test_frontier() -> None:
    points = [(1.0, 90.0), (2.0, 80.0), (2.0, 85.0), (1.5, 70.0), (3.0, 10.0), (0.5, 90.0)]
    assert frontier(points) == [(1.0, 90.0), (2.0, 85.0), (3.0, 10.0)]


def test_a_new_mode_has_a_curve_over_the_option_that_varies(
    large: pd.DataFrame, drawings: dict[str, Drawing]
) -> None:
    (curve,) = curves(places(large)[0], ("brand_new",))
    assert curve.knob == "tau"
    assert curve.name == "brand-new"
    assert list(curve.rows["tau"]) == [0.3, 0.6, 0.9]
    assert knob_of(curve.rows.assign(tau=0.5, k=[1, 2, 3])) == "k"
    assert knob_of(curve.rows.assign(tau=None)) == ""
    two = curve.rows.assign(tau=[0.5, 0.5, 0.6], k=[1, 2, 1])
    assert curve_name(two.iloc[0], "k") == "brand-new, τ 0.5"
    assert "brand-new" in legend(drawings["pareto"])
    assert "brand-new" in set(drawings["pareto"].numbers["curve"])


def test_options_that_differ_make_another_curve(large: pd.DataFrame) -> None:
    names = [curve.name for curve in curves(places(large)[0], ("direct",))]
    assert len(names) == len(set(names))
    assert {"direct, k2", "direct, k2, scale 2"} <= set(names)
    row = large[large["mode"] == "remask"].iloc[0]
    assert curve_name(row.copy(), "tau") == "remask, default"


def test_other_seeds_are_no_heads_of_their_own(
    large: pd.DataFrame, drawings: dict[str, Drawing]
) -> None:
    lookahead = drawings["lookahead"]
    assert not any("seed" in name for name in legend(lookahead))
    assert "other seeds" in note(lookahead)
    place = places(large)[0]
    (curve,) = (each for each in curves(place, ("direct",)) if each.name == "direct, default")
    assert set(place.seeds(curve.rows.iloc[0])["head"]) == set(SEEDS)
    assert set(SEEDS) <= set(drawings["depth"].numbers["head"])


def test_depth_is_drawn_where_heads_differ_in_it(drawings: dict[str, Drawing]) -> None:
    drawing = drawings["depth"]
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes[::3]]
    assert titles == [f"S · {task}" for task in TASKS]
    line = drawing.numbers[drawing.numbers["curve"] == "direct, default, K=1"]
    line = line[(line["task"] == "mini_math") & line["head_seed_of"].isna()]
    assert list(line["value"]) == [1, 2, 3, 4, 8]
    assert list(line["head"]) == ["layers-1", "layers-2", "default", "layers-4", "layers-8"]


def test_lookahead_leaves_depth_to_its_own_figure(drawings: dict[str, Drawing]) -> None:
    drawing = drawings["lookahead"]
    assert not set(drawing.numbers["head"]) & set(DEPTHS)
    assert {f"default: {RESIDUAL}", f"gt-1-4: {RESIDUAL}"} <= set(legend(drawing))


def test_lookahead_shows_ways_without_further_options(large: pd.DataFrame) -> None:
    """Those of modes that some way of is swept over K, of their other ways a single K too."""
    single = (large["mode"] == "speculative") & (large["head"] == "default") & (large["k"] != 3)
    own_k = (large["mode"] == "self_lattice") & (large["k"] != 4)
    table = large[~single & ~own_k].copy()
    table.loc[table["mode"] == "lattice", "window"] = 3
    with style.styled():
        drawing = lookahead(table)
    shown = drawing.numbers
    assert set(shown["mode"]) == {"static", "direct", "speculative", "self_speculative"}
    assert table.set_index("job").loc[shown["job"], "scale"].fillna(1).eq(1).all()
    alone = shown[(shown["mode"] == "speculative") & (shown["head"] == "default")]
    assert set(alone["value"]) == {3}
    assert not any("lattice" in name or "scale" in name for name in legend(drawing))
    assert "Ways without further options." in note(drawing)


def test_acceptance_shows_rounds_by_accepted_drafts(
    large: pd.DataFrame, drawings: dict[str, Drawing]
) -> None:
    drawing = drawings["acceptance"]
    numbers = drawing.numbers
    rounds = [[int(often) for often in text.split()] for text in numbers["accepted_rounds"]]
    means = [sum(a * n for a, n in enumerate(found)) / sum(found) for found in rounds]
    assert sorted(f"{mean:.2f}" for mean in means) == sorted(texts(drawing))
    per_draft = [mean / k for mean, k in zip(means, numbers["value"], strict=True)]
    assert per_draft == pytest.approx(list(numbers["acceptance"]))
    first = drawing.figure.axes[0].patches
    shares = [100 * often / sum(rounds[0]) for often in rounds[0]]
    assert [patch.get_width() for patch in first[: len(rounds[0])]] == pytest.approx(shares)
    assert legend(drawing) == [f"{size} accepted" for size in range(5)]
    with style.styled():
        small = large[large["backbone"] == "S"]
        without = acceptance(small.assign(accepted_rounds=""))
        uncounted = small["mode"] == "lattice"
        partly = acceptance(
            small.assign(accepted_rounds=small["accepted_rounds"].mask(uncounted, ""))
        )
    assert texts(without) == []
    assert without.figure.axes[0].get_xlabel() == "drafts accepted, %"
    assert set(partly.numbers["mode"]) == {"speculative", "self_speculative", "self_lattice"}


def test_acceptance_has_every_option_of_a_lattice(large: pd.DataFrame) -> None:
    wide = large[large["mode"] == "lattice"].assign(window=3)
    with style.styled():
        shown = acceptance(pd.concat([large, wide.assign(job=wide["job"] + ".w3")])).numbers
    found = set(shown.loc[shown["mode"] == "lattice", "curve"])
    assert found == {"lattice, k2", "lattice, k2, window 3"}


def test_headline_is_the_mean_over_tasks(large: pd.DataFrame, drawings: dict[str, Drawing]) -> None:
    numbers = drawings["headline"].numbers
    speeds = numbers[(numbers["panel"] == "speed") & (numbers["measure"] == "time_ratio")]
    assert set(speeds["backbone"]) == {"S", "M"}
    modes = {setting.split(",")[0].replace("-", "_") for setting in speeds["setting"]}
    assert modes == {"direct", *LOSSLESS}
    direct = speeds[speeds["setting"] == "direct, k2, K=1"].iloc[0]
    mine = large[(large["mode"] == "direct") & (large["head"] == "k2") & (large["k"] == 1)]
    mine = mine[(mine["backbone"] == direct["backbone"]) & (mine["scale"] == 1)]
    assert len(mine) == len(TASKS)
    assert direct["mean"] == pytest.approx(mine["time_ratio"].mean())  # arithmetic, as in tables
    assert direct["low"] < direct["mean"] < direct["high"]
    gains = numbers[numbers["panel"] == "accuracy"]
    assert set(gains["setting"]) == {"dynamic", "remask, default", "remask, default, by halves"}
    dynamic = gains[(gains["setting"] == "dynamic") & (gains["tau"] == 0.5)].set_index("backbone")
    source = large[(large["mode"] == "dynamic") & (large["tau"] == 0.5)]
    for backbone, accuracy in source.groupby("backbone")["accuracy"].mean().items():
        assert dynamic.loc[backbone, "mean"] == pytest.approx(accuracy)


def fastest(drawing: Drawing) -> dict[str, str]:
    """The settings shown, by mode."""
    numbers = drawing.numbers
    shown = set(numbers.loc[numbers["panel"] == "speed", "setting"])
    return {name.split(",")[0]: name for name in shown}


def test_headline_shows_what_is_fastest_by_the_clock(large: pd.DataFrame) -> None:
    """The means over all backbones and tasks decide; what was not timed leaves it to the TPF."""
    lattice = large["mode"] == "lattice"
    capped = large[lattice].assign(cap=0.9, time_ratio=9.0, tpf=9.0)
    of_k = {1: 1.4, 2: 1.2, 3: 1.1, 4: 1.0}
    table = large.assign(time_ratio=large["k"].map(of_k).where(lattice, large["time_ratio"]))
    at_m = lattice & (table["backbone"] == "M")
    table.loc[at_m & (table["k"] == 2), "time_ratio"] = 2.0  # S: 1.2, so 1.6 in the mean
    table = pd.concat([table, capped], ignore_index=True)
    with style.styled():
        timed = headline(table)
        table.loc[table.index[(table["mode"] == "speculative")][:1], "time_ratio"] = float("nan")
        untimed = headline(table)
    assert fastest(timed)["lattice"] == "lattice, k2, K=2"
    assert "each lossless mode's with the most tokens/s" in note(timed)
    assert fastest(untimed)["lattice"] == "lattice, k2, K=4"
    assert "each lossless mode's with the most tokens per forward" in note(untimed)
    for drawing in (timed, untimed):
        assert fastest(drawing)["direct"] == "direct, k2, K=1"
        assert "direct's smallest K with the most accurate head" in note(drawing)


def test_remask_gains_are_the_compared_ones(
    large: pd.DataFrame, drawings: dict[str, Drawing]
) -> None:
    numbers = drawings["remask"].numbers
    source = large[large["mode"] == "remask"].set_index(["job", "task"])
    assert len(numbers) == len(source)
    for _, row in numbers.iterrows():
        for gain in ("vs_dynamic", "vs_dynamic_at_tpf", "vs_dynamic_at_time"):
            assert row[gain] == source.loc[(row["job"], row["task"]), gain]


def test_remask_has_a_row_of_panels_a_gain(
    large: pd.DataFrame, drawings: dict[str, Drawing]
) -> None:
    labels = ["gain at equal τ, points", "gain at equal TPF, points", "gain in equal time, points"]
    with style.styled():
        untimed = remask(large.assign(time_ratio=float("nan")))
    for drawing, wanted in ((drawings["remask"], labels), (untimed, labels[:2])):
        axes = drawing.figure.axes
        found = [" ".join(panel.get_ylabel().split()) for panel in axes if panel.get_ylabel()]
        assert found == wanted * len(TASKS)
    source = large[(large["mode"] == "remask") & large["head_seed_of"].isna()]
    place = source[(source["backbone"] == "S") & (source["task"] == next(iter(TASKS)))]
    in_time = next(p for p in drawings["remask"].figure.axes if "time" in p.get_ylabel())
    gains = [line.get_ydata() for line in in_time.lines if len(line.get_ydata()) > 2]
    assert sorted(np.concatenate(gains)) == pytest.approx(sorted(100 * place["vs_dynamic_at_time"]))


def test_notes_are_no_wider_than_the_figure(large: pd.DataFrame) -> None:
    one = large[(large["backbone"] == "S") & (large["task"] == "mini_math")]
    with style.styled():
        figure = remask(one).figure
        style.freeze(figure)
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        title = figure.legends[0].get_title().get_window_extent(renderer)
    assert figure.bbox.x0 <= title.x0 < title.x1 <= figure.bbox.x1


def test_the_invented_table_is_like_a_real_one(rows: pd.DataFrame, large: pd.DataFrame) -> None:
    assert set(rows) <= set(large)
