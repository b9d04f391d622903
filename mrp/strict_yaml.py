"""YAML files with one clear line for each mistake in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from mrp.errors import UserError

MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice, where plain YAML silently drops the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue  # "<<": the keys of another mapping, which this one's own go before
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                mark = key_node.start_mark
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", mark
                )
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep)


# 1e-3 is a number in YAML 1.2 and to every reader; PyYAML takes it for a text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path, loader: type[yaml.SafeLoader] = _Loader) -> Any:
    """The value in a YAML file; another `loader` may know more tags and allow a key twice.

    Raises:
        UserError: it is no valid YAML or gives a key twice; names the place.
    """
    try:
        return yaml.load(path.read_text("utf-8"), loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}: no valid YAML{where}: {error.problem}") from None
    except RecursionError:
        raise UserError(f"{path}: no valid YAML: nested too deeply") from None
    except (AttributeError, KeyError, IndexError, TypeError) as error:  # PyYAML's, for a bad tag
        raise UserError(
            f"{path}: no valid YAML: a value does not fit its !!tag ({error}): leave the tag out"
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # no UTF-8, a date that does not exist
        raise UserError(f"{path}: no valid YAML: {str(error).splitlines()[0]}") from None
