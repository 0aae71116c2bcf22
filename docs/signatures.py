"""Signatures and docstrings of the Python reference.

Functions keep the annotations that their source has, overloads as one. What is compiled has both in the stub
_C.pyi, since a compiled function knows neither.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import shardway

if TYPE_CHECKING:
    from sphinx.application import Sphinx

STUB = Path(__file__).resolve().parents[1] / "python/shardway/_C.pyi"


# Other calls make them: nobody else calls their constructors.
MADE_BY_OTHERS = {
    f"shardway.{name}" for name in ("JobLink", "Source", "Target", "ModelPlan", "Owners", "PreparedCall", "Trace")
}


class Declared(NamedTuple):
    signature: str
    returns: str | None
    docstring: str | None


def read_stub() -> dict[str, Declared]:
    """The classes that the stub declares and what they have, by names such as Layout and Layout.box. Functions are
    called through Python, where they have their signatures."""
    found = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = Declared("()", None, ast.get_docstring(node))
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    found[f"{node.name}.{member.name}"] = declared(member)
            if constructor := found.get(f"{node.name}.__init__"):
                found[node.name] = found[node.name]._replace(signature=constructor.signature)
    return found


def declared(node: ast.FunctionDef) -> Declared:
    arguments = node.args
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    for first in (arguments.posonlyargs, arguments.args):
        if first and first[0].arg == "self":
            del first[0]
    signature = "" if "property" in decorators else f"({ast.unparse(arguments)})"
    returns = ast.unparse(node.returns) if node.returns else None
    return Declared(signature, returns, ast.get_docstring(node))


DECLARED = read_stub()


def signature_of(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    if stub := DECLARED.get(name.removeprefix("shardway.")):
        return stub.signature or None, None if what == "class" else stub.returns
    if what == "class":
        if name in MADE_BY_OTHERS:
            return None, None
        obj = obj.__init__
    if not inspect.isfunction(obj):
        return signature, returns
    found = inspect.signature(inspect.unwrap(obj))
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    texts = [as_text(p, q.annotation) for p, q in zip(parameters, found.parameters.values(), strict=True)]
    if texts and parameters[0].name == "self":
        texts, parameters = texts[1:], parameters[1:]
    return f"({', '.join(with_marks(texts, parameters))})", None if what == "class" else shown(found.return_annotation)


def as_text(parameter: inspect.Parameter, annotation: Any) -> str:
    text = str(parameter.replace(default=inspect.Parameter.empty))
    if (hint := shown(annotation)) is not None:
        text += f": {hint}"
    if parameter.default is not inspect.Parameter.empty:
        text += f" = {parameter.default!r}"
    return text


def with_marks(texts: list[str], parameters: list[inspect.Parameter]) -> list[str]:
    """The marks / and * where the parameters before are by position alone, or those behind by name alone."""
    result: list[str] = []
    kinds = [p.kind for p in parameters]
    for i, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        if (
            kind == inspect.Parameter.KEYWORD_ONLY
            and inspect.Parameter.VAR_POSITIONAL not in kinds
            and "*" not in result
        ):
            result.append("*")
        result.append(text)
        if kind == inspect.Parameter.POSITIONAL_ONLY and kinds[i + 1 : i + 2] != [kind]:
            result.append("/")
    return result


def shown(annotation: Any) -> str | None:
    if annotation is inspect.Signature.empty:
        return None
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text.replace("_C.", "")


def docstring_of(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    stub = DECLARED.get(name.removeprefix("shardway."))
    if stub and stub.docstring:
        lines[:] = stub.docstring.splitlines()


def setup(app: Sphinx) -> dict[str, bool]:
    for name in DECLARED:  # Sphinx asks us for a signature only where it has found one
        if isinstance(compiled := getattr(shardway, name, None), type):
            compiled.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    app.connect("autodoc-process-signature", signature_of)
    app.connect("autodoc-process-docstring", docstring_of, priority=100)  # before napoleon reads the sections
    return {"parallel_read_safe": True, "parallel_write_safe": True}
