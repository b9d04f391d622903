"""`mrp report`: tables, figures, findings and a page a run of a suite, from its records."""

from __future__ import annotations

import argparse
from pathlib import Path

from mrp.commands.suite_options import add_results_option
from mrp.errors import UserError

NAME = "report"
HELP = "write the tables, the figures, the findings or a page a run of a suite from its records"
PUBLISHED = Path("config/published.csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of all products."""
    products = parser.add_subparsers(dest="product", required=True, metavar="PRODUCT")
    tables = products.add_parser(
        "tables",
        help="tables.html, tables.tex and tables.csv",
        description="Write the paper's tables with what the records say, and what came out.",
    )
    figures = products.add_parser(
        "figures",
        help="headline, Pareto and five more as PDF, PNG, SVG and CSV",
        description="Draw the figures, each with a CSV of the numbers in it.",
    )
    findings = products.add_parser(
        "findings",
        help="the claims with their verdicts as a Markdown page",
        description="Write the paper's claims with what the records say of them as Markdown.",
    )
    pages = products.add_parser(
        "pages",
        help="a page for every run, with its samples and how each answer was revealed",
        description="Write a page for every run into the suite's results; tables link to them.",
    )
    short = products.add_parser(
        "short",
        help="accuracy, tokens per forward and speed of chosen settings, printed as Markdown",
        description="Print a short table of settings: means over tasks, a column a backbone.",
    )
    short.add_argument(
        "--of",
        nargs="+",
        required=True,
        metavar="SETTING",
        help="jobs' ids without backbone and tasks, such as static or dynamic.tau0.5",
    )
    places = (
        (tables, "results"),
        (figures, "figures"),
        (findings, "findings.md"),
        (pages, None),
        (short, None),
    )
    for product, out in places:
        product.add_argument(
            "--suite",
            default="embedded",
            help="a YAML file, or a name in config/suites (default: %(default)s)",
        )
        product.add_argument(
            "--heads",
            default="released",
            metavar="WHICH",
            help="released or train: the heads that the workflow ran with (default: %(default)s)",
        )
        add_results_option(product)
        if product is not pages:
            product.add_argument(
                "--records",
                type=Path,
                metavar="DIR",
                help="read the records that `mrp pack --records DIR` wrote, not --results",
            )
        if out is not None:
            product.add_argument(
                "--out",
                type=Path,
                default=Path(out),
                metavar="FILE" if product is findings else "DIR",
                help="where to write (default: %(default)s)",
            )
    findings.add_argument(
        "--figures",
        type=Path,
        metavar="DIR",
        help="a folder that holds the suite's figures, to be shown on the page",
    )
    tables.add_argument(
        "--published",
        type=Path,
        metavar="FILE",
        help="the paper's numbers, shown beside the same backbones, tasks and settings "
        f"(default: {PUBLISHED} if it is there)",
    )


def run(args: argparse.Namespace) -> None:
    """Write the product and name its files."""
    from mrp.grid import heads_from, load_suite
    from mrp.report.frame import load_records, load_results

    suite = load_suite(args.suite)
    heads = heads_from(args.heads, "--heads")
    records = getattr(args, "records", None)
    if records is None and not args.results.is_dir():
        raise UserError(f"--results {args.results}: no such folder")
    if args.product == "pages":
        from mrp.report.runs import write_pages

        written = write_pages(suite, args.results, heads)
        print(f"{len(written.runs)} pages")
        print(written.index)
        return
    if records is not None:
        results = load_records(suite, records)
    else:
        results = load_results(suite, args.results, heads)
    if args.product == "short":
        from mrp.report.short import short_table

        print("\n".join(short_table(results, args.of)))
        return
    if args.product == "tables":
        from mrp.report.page import write_tables
        from mrp.report.published import read_published
        from mrp.report.runs import links

        path = args.published or (PUBLISHED if PUBLISHED.is_file() else None)
        published = read_published(path) if path else None
        to_runs = {} if records else links(suite, args.results, heads, args.out)
        files = write_tables(results, published, args.out, to_runs)
    elif args.product == "findings":
        from mrp.report.markdown import write_findings

        if args.figures is not None and not args.figures.is_dir():
            raise UserError(f"--figures {args.figures}: no such folder")
        files = [write_findings(results, args.out, args.figures)]
    else:
        from mrp.report.comparisons import compare
        from mrp.report.figures import write_figures

        files = write_figures(compare(results), args.out)
    done = results.rows.drop_duplicates("job")["status"]
    print(f"{(done == 'done').sum()} of {len(done)} jobs have a record")
    for file in files:
        print(file)
