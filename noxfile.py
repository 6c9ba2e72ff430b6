"""The commands of every day, in the environment that is active: `nox -s lint`, `tests`, `docs`, `tour`.

`nox -s interpreters` runs the tests on the other versions of Python that are on this machine, each in
an environment of its own.
"""

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "tests"]
nox.options.error_on_missing_interpreters = False


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, lint, types and the order of the packages."""
    for command in ("ruff format --check .", "ruff check .", "mypy", "lint-imports"):
        session.run(*command.split())


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests."""
    session.run("pytest", "-n", "auto", "--dist", "loadfile", *session.posargs)


@nox.session(python=["3.12", "3.13"], venv_backend="venv")
def interpreters(session: nox.Session) -> None:
    """Run the fast tests on another version of Python; it is skipped where that is missing."""
    session.install("-e", ".[test]")  # constraints.txt pins versions for 3.11
    session.run("pytest", "-n", "auto", "--dist", "loadfile", "-m", "not slow", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site strictly."""
    session.run("mkdocs", "build", "--strict")


@nox.session
def tour(session: nox.Session) -> None:
    """Execute the notebook and keep its outputs."""
    session.run("jupyter", "execute", "--inplace", "docs/tour.ipynb")
