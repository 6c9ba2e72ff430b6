"""What a group of fits has recorded so far, as text that a checkpoint keeps."""

import json
from collections.abc import Iterable

from bdl.store.rows import Reading


class Log:
    """Scores at recorded counts, by member, and the seconds of training they took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._found: dict[int, dict[tuple[str, int, str], float]] = {}

    @classmethod
    def parse(cls, text: str) -> "Log":
        """Read what `text` writes; an empty text is an empty log."""
        log = cls()
        if text:
            log.seconds, members = json.loads(text)
            for member, readings in members.items():
                log.add(int(member), [Reading(*reading) for reading in readings])
        return log

    @property
    def text(self) -> str:
        """JSON of all there is."""
        members = {member: self.readings(member) for member in self._found}
        return json.dumps([self.seconds, members])

    def add(self, member: int, readings: Iterable[Reading]) -> None:
        """Take scores of a member; one that is there already, from before an interruption, is replaced."""
        own = self._found.setdefault(member, {})
        own.update({(reading.axis, reading.at, reading.metric): reading.value for reading in readings})

    def readings(self, member: int) -> tuple[Reading, ...]:
        """List the scores of a member, in the order in which they came."""
        return tuple(Reading(*key, value) for key, value in self._found.get(member, {}).items())
