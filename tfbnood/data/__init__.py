"""Images to train on and to test with: data sets by name, folders, arrays, and pools of outliers."""

from tfbnood.data.catalogue import DATA_DIR_VARIABLE, NAMES
from tfbnood.data.folders import FolderImages, from_folder
from tfbnood.data.formats import decode_image, from_npz, from_tf_data
from tfbnood.data.pools import mix, photo_patches, rotate
from tfbnood.data.sets import Dataset, describe, load

__all__ = [
    "DATA_DIR_VARIABLE",
    "NAMES",
    "Dataset",
    "FolderImages",
    "decode_image",
    "describe",
    "from_folder",
    "from_npz",
    "from_tf_data",
    "load",
    "mix",
    "photo_patches",
    "rotate",
]
