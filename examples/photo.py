"""Print the path of a photograph that scikit-learn ships, for use on a command line:

python examples/photo.py
"""

from importlib.resources import files


def china() -> str:
    """A temple roof in front of trees, 640 x 427 pixels, JPEG."""
    return str(files("sklearn.datasets").joinpath("images", "china.jpg"))


if __name__ == "__main__":
    print(china())
