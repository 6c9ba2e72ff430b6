"""Hooks of the documentation site (`mkdocs build --strict`): pages that are made of other files of the repository.

The README is the front page; the changelog, the page on data and the published tables are pages as
they are, the tables with their figures, and one of them with its report; methods and benchmarks
are listed from their registries, and the tour is the executed notebook. Links are those of the
repository, rewritten.
"""

import json
import posixpath
import re
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leaderboard import leaderboard, yaml_sections
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from bdl.methods import METHODS
from bdl.publishing.report_page import select_headline, write_page
from bdl.spec import list_benchmarks, load_request

ROOT = Path(__file__).parents[1]
AS_THEY_ARE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "data/README.md": "data.md",
}
"""Files of the repository to the pages that they are."""
REPORTED = "uci-regression"
"""Benchmark whose report is part of the site."""
PROFILES = ("cpu",)
"""Profiles whose results are published beside the protocol's, or before them."""
LIGHT = 200_000
"""Bytes; larger figures are left in the repository."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`, and the figures of published results."""
    files.remove(files.src_uris["tour.ipynb"])
    pages = dict(made(config))
    for uri, content in pages.items():
        files.append(
            File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
        )
    texts = [path.read_text("utf-8") for path in ROOT.glob("docs/*.md")] + [str(pages["index.md"])]
    shown = {found for text in texts for found in re.findall(r"results/[\w/-]+\.png", text)}
    for figure in shown | {
        f"results/{folder}/{path}" for folder, _ in published() for path in figures(folder)
    }:
        files.append(File.generated(config, figure, abs_src_path=str(ROOT / figure)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site.

    A link to any other file of the repository is left as text.
    """
    here = next(
        (path for path, uri in AS_THEY_ARE.items() if uri == page.file.src_uri), page.file.src_uri
    )
    folder = posixpath.dirname(
        here if here in AS_THEY_ARE or here.startswith("results/") else f"docs/{here}"
    )

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link["text"], link["target"], link["anchor"] or ""
        if "://" in target or not target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        uri = AS_THEY_ARE.get(path, path.removeprefix("docs/").replace(".ipynb", ".md"))
        if uri not in files.src_uris:  # one that leads nowhere at all is left to the strict build
            return text.strip("[]") if (ROOT / path).exists() else link[0]
        return f"{text}({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return re.sub(
        r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)", rewritten, markdown
    )


def made(config: MkDocsConfig) -> Iterator[tuple[str, str | bytes]]:
    """Return the pages with their content, and the pictures of the notebook."""
    for source, page in AS_THEY_ARE.items():
        yield page, (ROOT / source).read_text("utf-8")
    yield "methods.md", methods()
    yield "benchmarks.md", benchmarks()
    for folder, title in published():
        table = (ROOT / f"results/{folder}/table.md").read_text("utf-8")
        pictures = {
            Path(path).stem: f"![{Path(path).stem}]({path}){{ loading=lazy }}"
            for path in figures(folder)
        }
        headline = select_headline([*pictures], load_request(folder.partition("/")[0]).benchmark)
        opening = [pictures.pop(headline)] if headline else []
        whole = (
            ["[Report with figures, failures and errata](report.html)"]
            if folder == REPORTED
            else []
        )
        parts = [
            "---\nhide: [toc]\n---",
            f"# {folder}",
            title,
            *opening,
            *whole,
            table,
            *pictures.values(),
        ]
        yield f"results/{folder}/table.md", "\n\n".join(parts)
    yield f"results/{REPORTED}/report.html", report()
    yield from leaderboard([folder for folder, _ in published()])
    yield from notebook(json.loads((ROOT / "docs/tour.ipynb").read_text("utf-8")))


def published() -> Iterator[tuple[str, str]]:
    """Return the folders of published tables, of benchmarks and of their profiles, and the benchmarks' titles."""
    for name, title in list_benchmarks():
        for folder in (name, *(f"{name}/{profile}" for profile in PROFILES)):
            if (ROOT / f"results/{folder}/table.md").exists():
                yield folder, title


def figures(folder: str) -> list[str]:
    """List the light figures of a folder of results, as it has them."""
    paths = sorted((ROOT / f"results/{folder}").glob("figures/*.png"))
    return [f"figures/{path.name}" for path in paths if path.stat().st_size <= LIGHT]


def report() -> bytes:
    """Return the report of a benchmark, which is not kept in the repository."""
    with tempfile.TemporaryDirectory() as folder:
        return write_page(
            load_request(REPORTED), ROOT / "results", Path(folder) / "report.html"
        ).read_bytes()


def methods() -> str:
    """List the methods, those of one module together, with what their docstrings say."""
    modules: dict[str, list[str]] = {}
    for target in METHODS.builtin.values():
        modules.setdefault(target.partition(":")[0], []).append(target)
    names = {target: name for name, target in METHODS.builtin.items()}
    sections = [
        f"## {', '.join(names[target] for target in targets)}\n\n::: {module}\n    options:\n      members: "
        f"[{', '.join(target.partition(':')[2] for target in targets)}]\n"
        for module, targets in sorted(modules.items(), key=lambda item: names[item[1][0]])
    ]
    return "# Methods\n\nEvery method with its formula and source.\n\n" + "\n".join(sections)


def benchmarks() -> str:
    """List the benchmarks, with their published tables."""
    links = {
        name: [folder for folder, _ in published() if folder.partition("/")[0] == name]
        for name, _ in list_benchmarks()
    }
    rows = [
        f"| {', '.join(f'[{folder}](results/{folder}/table.md)' for folder in links[name]) or name} | {title} |"
        for name, title in list_benchmarks()
    ]
    about = "Links lead to published results. `bdl-bench run NAME` runs one, `bdl-bench describe NAME` describes it."
    return "\n".join(
        [
            "# Benchmarks",
            "",
            about,
            "",
            "| Name | Title |",
            "|---|---|",
            *rows,
            "",
            yaml_sections(),
            "",
        ]
    )


def notebook(content: dict[str, Any]) -> Iterator[tuple[str, str | bytes]]:
    """Return a notebook as a page, with the outputs that it holds, and its pictures."""
    parts, pictures = [], 0
    for cell in content["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                yield f"images/tour-{pictures}.png", b64decode(data["image/png"])
                parts.append(f"![Plot](images/tour-{pictures}.png)")
            elif "text/html" in data:
                frame = re.search(r"<thead>.*</tbody>", "".join(data["text/html"]), re.DOTALL)
                assert frame, "only pandas frames are shown so"
                parts.append(
                    "<table>" + re.sub(r'\n\s*| style="[^"]*"', "", frame[0]) + "</table>"
                )
            else:
                shown = output.get("text") or data["text/plain"]
                parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    yield "tour.md", "\n\n".join(parts) + "\n"
