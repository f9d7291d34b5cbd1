"""Images from wherever they are, as checked uint8 arrays `[n, height, width, channels]`.

`load` knows data sets by name and cuts them into train, calibration and test; `from_folder`, `from_npz` and
`from_tf_data` read a user's own. `rotate` and `mix` make outliers and contaminated pools from them.
"""

from tfbnood.data.catalogue import DATA_DIR_VARIABLE, NAMES
from tfbnood.data.changes import CHANGES, change
from tfbnood.data.folders import FolderImages, from_folder
from tfbnood.data.formats import decode_image, from_npz, from_tf_data
from tfbnood.data.pools import mix, photo_patches, rotate
from tfbnood.data.sets import Dataset, describe, load

__all__ = [
    "CHANGES",
    "DATA_DIR_VARIABLE",
    "NAMES",
    "Dataset",
    "FolderImages",
    "change",
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
