"""Two-class sets of the LIBSVM collection, in the files and with the splits of Mishkin et al. (2018), "SLANG"."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np

from bdl.data.files import RemoteFile
from bdl.data.fileset import Array, FileSet
from bdl.data.splits import Split, half_split, leading_split

PUBLIC = "https://raw.githubusercontent.com/aaronpmishkin/SLANG/2563276dedf4d18c77f3195e8645d3133be8d14c/code/matlab/datasets"


@dataclass(frozen=True)
class LibsvmSet(FileSet):
    """One row of the table below; the larger of the two labels in the file is 1, and there is no column of ones.

    Parameters
    ----------
    file
        Name of the file.
    sha256
        Hex digest of its content.
    train
        Rows of the training part, where the file has one and a test part; None for random halves.
    """

    file: str
    sha256: str
    train: int | None = None

    @property
    def files(self) -> list[RemoteFile]:
        """The one file."""
        return [RemoteFile(self.name, f"libsvm/{self.file}", f"{PUBLIC}/{self.file}", self.sha256)]

    def table(self) -> tuple[Array, Array]:
        """Read the training part and then the test part, if there is one."""
        from scipy.io import loadmat

        content = loadmat(BytesIO(self.files[0].read_bytes()))  # type: ignore[arg-type]  # the stubs know paths only
        ends = [end for end in ("", "_te") if f"X{end}" in content]
        parts = [content[f"X{end}"].toarray(order="C") for end in ends]
        labels = np.concatenate([content[f"y{end}"].ravel() for end in ends])
        # sparse files do not count the last columns if they are all zero
        d = max(part.shape[1] for part in parts)
        x = np.concatenate([np.pad(part, ((0, 0), (0, d - part.shape[1]))) for part in parts])
        return x, (labels == labels.max()).astype(np.float64)

    def split(self, index: int) -> Split:
        """Return the published part, or halves: split i has the seed i + 1."""
        return half_split(self.n, index + 1) if self.train is None else leading_split(self.n, self.train)


australian = LibsvmSet(
    "australian",
    "whether a credit card was granted (1) or refused",
    *(690, 14, 20),
    "australian_scale.mat",
    "a2576dbf3c5b16e01689856770442556829d1a79e18b32e7af56c5473f977360",
)
breast_cancer = LibsvmSet(
    "breast_cancer",
    "whether a tumour is malignant (1) or benign",
    *(683, 10, 20),
    "breast_cancer_scale.mat",
    "ff5a6a168fad4050be607432019b4eaf04410efe04278e536b3db23fea340236",
)
a1a = LibsvmSet(
    "a1a",
    "whether a person earns more than 50,000 USD a year (1) or not",
    *(32561, 123, 1),
    "a1a.mat",
    "486d06f1bdeef6211e1fa2674bfc94880e97e6f578a3689f238d51d0341b8022",
    train=1605,
)
