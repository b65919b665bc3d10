"""Listings: the files of a folder by class and name, without opening them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from aacp import InvalidData
from aacp.zoo.listing import ImagePaths, list_flat, list_images


def tree(root: Path, files: list[str]) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_images_are_listed_by_class_and_name_also_in_folders_below(tmp_path: Path) -> None:
    names = [
        "b/2.jpg",
        "b/10.JPEG",
        "a/x.png",
        "a/deep/er/y.jpg",
        "a/notes.txt",
        "a/.hidden.jpg",
        ".git/c.jpg",
        "d.jpg",
    ]
    files, labels, classes = list_images(tree(tmp_path, [*names, "b/ümlaut.jpg"]))
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "a/deep/er/y.jpg", "a/x.png", "b/10.JPEG", "b/2.jpg", "b/ümlaut.jpg",
    ]  # fmt: skip
    assert labels.tolist() == [0, 0, 1, 1, 1]
    assert classes == ("a", "b")


def test_links_to_folders_and_files_are_followed(tmp_path: Path) -> None:
    tree(tmp_path / "real", ["a/1.jpg"])
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a").symlink_to(tmp_path / "real" / "a")
    assert len(list_images(tmp_path / "links")[0]) == 1


@pytest.mark.parametrize(
    ("files", "words"), [(["a/1.jpg", "b/notes.txt"], "class folder b contains no JPEG"), ([], "no class folders")]
)
def test_an_empty_class_is_named(files: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=words):
        list_images(tree(tmp_path, files))


def test_subsets_and_joins_are_those_of_lists() -> None:
    names = [f"c{number % 3}/{number}.jpg" for number in range(30)]
    listing = ImagePaths.of("/data", names)
    assert [str(file) for file in listing] == [f"/data/{name}" for name in names]
    part, rest = listing.subset(np.array([5, 2, 29])), listing[:4]
    assert [file.name for file in part] == ["5.jpg", "2.jpg", "29.jpg"]
    assert [file.name for file in part.joined(rest)] == [file.name for file in [*part, *rest]]
    elsewhere = ImagePaths.of("/other", ["z.jpg"])
    assert [str(file) for file in part.joined(elsewhere)] == [*map(str, part), "/other/z.jpg"]


def test_the_digest_knows_names_and_order_but_not_the_root() -> None:
    one = ImagePaths.of("/data", ["a/1.jpg", "a/2.jpg"])
    assert one.digest() == ImagePaths.of("/moved", ["a/1.jpg", "a/2.jpg"]).digest()
    others = [["a/2.jpg", "a/1.jpg"], ["a/1.jpg"], ["a/1.jpga", "/2.jpg"]]
    assert one.digest() not in {ImagePaths.of("/data", names).digest() for names in others}


def named_like_imagenet(count: int) -> ImagePaths:
    return ImagePaths.of("/data", (f"n{number // 1300:08d}/n{number:08d}_{number}.JPEG" for number in range(count)))


@pytest.mark.slow
def test_the_names_of_many_images_take_little_memory() -> None:
    listing = named_like_imagenet(100_000)
    assert len(listing.block) + listing.starts.nbytes + listing.ends.nbytes < 62 * 100_000
    assert listing[99_999].name == "n00099999_99999.JPEG"


@pytest.mark.timing
def test_as_many_names_as_imagenet_has_are_listed_in_seconds() -> None:
    begun = time.process_time()
    assert len(named_like_imagenet(1_281_167)) == 1_281_167
    assert time.process_time() - begun < 10


def test_links_that_lead_back_are_rejected_and_not_followed_without_end(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.png").touch()
    for name in ("again", "and_again", "and_again_still"):
        (tmp_path / "cats" / name).symlink_to(tmp_path / "cats")
    with pytest.raises(InvalidData, match="is a link to a folder that contains it"):
        list_images(tmp_path)


def test_a_link_to_another_folder_of_images_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.png").touch()
    (tmp_path / "images" / "cats").mkdir(parents=True)
    (tmp_path / "images" / "cats" / "more").symlink_to(tmp_path / "elsewhere")
    assert list(list_images(tmp_path / "images")[0]) == [tmp_path / "images" / "cats" / "more" / "a.png"]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"The folder .*nowhere cannot be read: No such file"):
        list_flat(tmp_path / "nowhere")
