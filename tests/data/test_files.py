"""A file becomes an image by stated rules, every conversion is listed, and a broken file is refused with the reason."""

import contextlib
import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_image

from tfbnood.data import decode_image, files, fitting
from tfbnood.data.files import KINDS, Conversions, UnreadableImageError, read_image
from tfbnood.errors import DataError

PHOTO = load_sample_image("china.jpg")[100:148, 200:264]  # 48 × 64
ORIGINALS = Path(os.environ.get("TFBNOOD_DATA", ""), "originals")
FILES = sorted(path for path in ORIGINALS.rglob("*.*") if path.suffix in (".png", ".jpg"))

needs_originals = pytest.mark.skipif(
    not FILES, reason="needs originals/ in the folder that TFBNOOD_DATA names"
)


def encode(image: Image.Image | np.ndarray, image_format: str = "PNG", **options) -> bytes:
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def read_like_tensorflow(content: bytes, channels: int) -> np.ndarray:
    return tf.io.decode_jpeg(content, channels=channels, dct_method="INTEGER_ACCURATE").numpy()


def area_resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Means over areas from their definition: every pixel repeated until the new ones are whole blocks."""
    rows, columns, channels = pixels.shape
    fine = np.kron(pixels.astype(float), np.ones((height, width, 1)))
    return fine.reshape(height, rows, width, columns, channels).mean(axis=(1, 3))


def linear_resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Linear interpolation between the centres of pixels, constant outside of them."""
    for axis, new in enumerate((height, width)):
        old = pixels.shape[axis]
        places = (np.arange(new) + 0.5) * old / new - 0.5
        pixels = np.apply_along_axis(
            lambda line, places=places, old=old: np.interp(places, np.arange(old), line),
            axis,
            pixels,
        )
    return pixels


# Files that fit


PLAIN = {
    "grey PNG": lambda: encode(PHOTO[..., 0]),
    "colour PNG": lambda: encode(PHOTO),
    "palette PNG": lambda: encode(Image.fromarray(PHOTO).quantize(40)),
    "one-bit PNG": lambda: encode(PHOTO[..., 0] > 128),
    "opaque PNG with alpha": lambda: encode(Image.fromarray(PHOTO).convert("RGBA")),
    "16-bit grey PNG": lambda: encode(PHOTO[..., 0].astype(np.uint16) * 191 + 77),
    "interlaced grey PNG": lambda: encode(PHOTO[..., 1], interlace=1),
    "grey JPEG": lambda: encode(PHOTO[..., 0], "JPEG", quality=80),
    "colour JPEG": lambda: encode(PHOTO, "JPEG", quality=80),
    "colour JPEG without subsampling": lambda: encode(PHOTO, "JPEG", quality=95, subsampling=0),
    "progressive JPEG": lambda: encode(PHOTO, "JPEG", progressive=True),
    "CMYK JPEG": lambda: encode(Image.fromarray(PHOTO).convert("CMYK"), "JPEG"),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", PLAIN)
def test_a_file_that_fits_has_the_values_of_tensorflows_decoders(kind, channels):
    content = PLAIN[kind]()
    image, _ = read_image(content, (48, 64, channels))
    if kind == "CMYK JPEG" and channels == 1:  # TensorFlow does not decode it.
        expected = np.floor(read_like_tensorflow(content, 3) @ [[0.299], [0.587], [0.114]])
        assert np.abs(image - expected).max() <= 1
    else:
        np.testing.assert_array_equal(image, read_like_tensorflow(content, channels))


@needs_originals
@pytest.mark.parametrize("channels", [1, 3])
def test_real_files_have_the_values_that_an_exported_detector_decodes(channels):
    assert len(FILES) == 22
    for path in FILES:
        content = path.read_bytes()
        with Image.open(path) as opened:
            shape = (opened.height, opened.width, channels)
        image, conversions = read_image(path, shape)
        np.testing.assert_array_equal(image, decode_image(content, shape))
        other = {".png": "grey_to_colour", ".jpg": "colour_to_grey"}[path.suffix]
        stored = {".png": 1, ".jpg": 3}[path.suffix]
        assert conversions.kinds == (() if stored == channels else (other,))


@pytest.mark.parametrize("kind", ["grey PNG", "one-bit PNG", "grey JPEG"])
def test_a_grey_file_that_fits_lists_no_conversion(kind):
    _, conversions = read_image(PLAIN[kind](), (48, 64, 1))
    assert conversions == Conversions(kind.split()[-1], (48, 64), ())


def test_a_path_and_its_content_give_the_same_image(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(encode(PHOTO))
    for file in (path, str(path), path.read_bytes()):
        image, conversions = read_image(file, (48, 64, 3))
        np.testing.assert_array_equal(image, PHOTO)
        assert conversions == Conversions("PNG", (48, 64))


@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("WEBP", {"lossless": True}),
    ],
)
def test_other_lossless_formats_keep_every_value(image_format, options):
    image, conversions = read_image(encode(PHOTO, image_format, **options), (48, 64, 3))
    np.testing.assert_array_equal(image, PHOTO)
    assert conversions == Conversions(image_format, (48, 64))


# Turned upright


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_exif_orientation_is_honoured(orientation, image_format):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if image_format == "WEBP" else {}
    content = encode(PHOTO, image_format, exif=exif, **options)
    with Image.open(io.BytesIO(content)) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened))
    assert expected.shape == ((64, 48, 3) if orientation > 4 else PHOTO.shape)
    image, conversions = read_image(content, expected.shape)
    np.testing.assert_array_equal(image, expected)
    assert conversions.kinds == (("rotated",) if orientation > 1 else ())
    assert conversions.size == expected.shape[:2]


def test_damaged_exif_data_count_as_none():
    content = encode(PHOTO, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01")
    with pytest.warns(UserWarning, match="Corrupt EXIF"):
        _, conversions = read_image(content, (48, 64, 3))
    assert conversions.kinds == ()


# Resized


sides = st.integers(1, 12)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(rows=sides, columns=sides, height=sides, width=sides, channels=st.sampled_from([1, 3]))
def test_an_axis_that_shrinks_is_averaged_by_area_and_one_that_grows_is_linear(
    rows, columns, height, width, channels
):
    pixels = np.random.RandomState(rows).randint(0, 256, (rows, columns, channels))
    pixels = pixels.astype(np.uint8)
    fitted, kinds = fitting.fit_pixels(pixels, height, width, "stretch")
    shrink_rows, shrink_columns = height < rows, width < columns
    expected = (area_resize if shrink_rows else linear_resize)(pixels, height, columns)
    expected = (area_resize if shrink_columns else linear_resize)(expected, height, width)
    assert np.abs(fitted - expected).max() <= 0.5001
    assert fitted.dtype == np.uint8
    assert ("resized" in kinds) == ((rows, columns) != (height, width))
    assert ("enlarged" in kinds) == (height > rows or width > columns)


@pytest.mark.parametrize("size", [(30, 30), (17, 40), (48, 31), (1, 1)])
def test_shrinking_is_tensorflows_area(size):
    image, _ = read_image(encode(PHOTO), (*size, 3), fit="stretch")
    expected = tf.image.resize(PHOTO, size, method="area").numpy()
    assert np.abs(image - expected).max() <= 0.501


@pytest.mark.parametrize("size", [(96, 128), (50, 70), (48, 65)])
def test_growing_is_tensorflows_bilinear(size):
    image, conversions = read_image(encode(PHOTO), (*size, 3), fit="stretch")
    expected = tf.image.resize(PHOTO, size, method="bilinear").numpy()
    assert np.abs(image - expected).max() <= 0.501
    assert {"resized", "enlarged"} <= set(conversions.kinds)


@pytest.mark.parametrize("times", [2, 3, 5])
def test_an_enlargement_by_repeated_pixels_is_undone_exactly(times):
    enlarged = np.kron(PHOTO, np.ones((times, times, 1), np.uint8))
    image, conversions = read_image(encode(enlarged), (48, 64, 3))
    np.testing.assert_array_equal(image, PHOTO)
    assert conversions == Conversions("PNG", (48 * times, 64 * times), ("resized",))


@pytest.mark.parametrize("size", [(700, 300), (31, 1)])
def test_images_of_many_rows_are_resized_in_strips_with_the_same_result(size, monkeypatch):
    pixels = np.random.RandomState(0).randint(0, 256, (613, 611, 1)).astype(np.uint8)
    in_strips, _ = fitting.fit_pixels(pixels, *size, "stretch")
    monkeypatch.setattr(fitting, "_ROWS_AT_ONCE", 10**6)
    at_once, _ = fitting.fit_pixels(pixels, *size, "stretch")
    # The order of additions differs, so that a half may be rounded either way.
    assert np.abs(in_strips.astype(int) - at_once).max() <= 1
    assert (in_strips != at_once).mean() < 1e-3


# Aspect ratio


def test_a_crop_is_the_largest_centred_part_with_the_ratio_of_the_image():
    square, conversions = read_image(encode(PHOTO), (48, 48, 3))
    np.testing.assert_array_equal(square, PHOTO[:, 8:56])
    assert conversions.kinds == ("cropped",)  # and not resized: no pixel was computed
    half, conversions = read_image(encode(PHOTO), (24, 24, 3))
    assert np.abs(half - area_resize(PHOTO[:, 8:56], 24, 24)).max() <= 0.5001
    assert conversions.kinds == ("resized", "cropped")
    wide, _ = read_image(encode(PHOTO), (16, 64, 3))
    np.testing.assert_array_equal(wide, PHOTO[16:32])


def test_padding_keeps_the_whole_picture_centred_on_black():
    image, conversions = read_image(encode(PHOTO), (64, 64, 3), fit="pad")
    np.testing.assert_array_equal(image[8:56], PHOTO)
    assert not image[:8].any()
    assert not image[56:].any()
    assert conversions.kinds == ("padded",)
    narrow, conversions = read_image(encode(PHOTO), (24, 40, 3), fit="pad")
    assert np.abs(narrow[:, 4:36] - area_resize(PHOTO, 24, 32)).max() <= 0.5001
    assert conversions.kinds == ("resized", "padded")


def test_stretching_keeps_the_whole_picture():
    image, conversions = read_image(encode(PHOTO), (24, 24, 3), fit="stretch")
    assert np.abs(image - area_resize(PHOTO, 24, 24)).max() <= 0.5001
    assert conversions.kinds == ("resized", "stretched")


@pytest.mark.parametrize("fit", fitting.FITS)
def test_a_change_of_the_aspect_ratio_up_to_1_percent_is_not_listed(fit):
    done = {"crop": "cropped", "pad": "padded", "stretch": "stretched"}[fit]
    pixels = np.zeros((200, 202, 1), np.uint8)
    assert done not in fitting.fit_pixels(pixels, 100, 100, fit)[1]
    pixels = np.zeros((200, 203, 1), np.uint8)
    assert done in fitting.fit_pixels(pixels, 100, 100, fit)[1]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    fit=st.sampled_from(fitting.FITS),
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA"]),
    channels=st.sampled_from([1, 3]),
)
def test_every_size_and_mode_gives_an_image_of_the_shape(
    rows, columns, height, width, fit, mode, channels
):
    random = np.random.RandomState(rows * columns)
    picture = Image.fromarray(random.randint(0, 256, (rows, columns, 4)).astype(np.uint8))
    content = encode(
        picture.convert("RGB").convert(mode) if mode in "1P" else picture.convert(mode)
    )
    image, conversions = read_image(content, (height, width, channels), fit=fit)
    assert image.shape == (height, width, channels)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert conversions.size == (rows, columns)
    assert list(conversions.kinds) == [kind for kind in KINDS if kind in conversions.kinds]


def test_one_colour_stays_that_colour_however_it_is_fitted():
    for size in ((3, 7), (48, 64), (70, 20), (128, 128)):
        for fit in ("crop", "stretch"):
            content = encode(np.full((48, 64, 3), (3, 128, 255), np.uint8))
            image, _ = read_image(content, (*size, 3), fit=fit)
            assert (image == (3, 128, 255)).all()


# Colours


def test_transparent_pixels_are_composited_over_white():
    alpha = np.random.RandomState(0).randint(0, 256, (48, 64, 1)).astype(np.uint8)
    expected = np.rint((PHOTO * (alpha / 255.0)) + 255 * (1 - alpha / 255.0))
    for image_format in ("PNG", "TIFF"):
        content = encode(np.concatenate([PHOTO, alpha], axis=-1), image_format)
        image, conversions = read_image(content, (48, 64, 3))
        np.testing.assert_array_equal(image, expected)
        assert conversions.kinds == ("transparent",)
    grey = Image.fromarray(np.concatenate([PHOTO[..., :1], alpha], axis=-1), "LA")
    image, conversions = read_image(encode(grey), (48, 64, 1))
    np.testing.assert_array_equal(image, expected[..., :1])
    assert conversions.kinds == ("transparent",)


@pytest.mark.parametrize("mode", ["L", "RGB", "P", "I;16"])
def test_a_colour_that_stands_for_transparent_becomes_white(mode):
    grey = np.tile(np.arange(64, dtype=np.uint8), (48, 1))
    picture = Image.fromarray(grey if mode != "I;16" else grey.astype(np.uint16) * 256)
    picture = picture if mode == "I;16" else picture.convert(mode)
    clear = {"L": 7, "RGB": (7, 7, 7), "P": 7, "I;16": 7 * 256}[mode]
    channels = 1 if mode in ("L", "I;16") else 3
    image, conversions = read_image(encode(picture, transparency=clear), (48, 64, channels))
    expected = np.where(grey == 7, 255, grey)
    np.testing.assert_array_equal(image, np.repeat(expected[..., None], channels, -1))
    assert "transparent" in conversions.kinds


def test_an_opaque_alpha_channel_is_not_listed():
    content = encode(Image.fromarray(PHOTO).convert("RGBA"))
    image, conversions = read_image(content, (48, 64, 3))
    np.testing.assert_array_equal(image, PHOTO)
    assert conversions.kinds == ()


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
def test_of_16_bits_the_high_byte_is_kept(image_format):
    values = np.random.RandomState(0).randint(0, 65536, (48, 64)).astype(np.uint16)
    image, conversions = read_image(encode(values, image_format), (48, 64, 1))
    np.testing.assert_array_equal(image[..., 0], values // 256)
    assert conversions.kinds == ("sixteen_bit",)


def test_16_bits_of_colour_are_listed_though_pillow_hides_them():
    values = np.random.RandomState(0).randint(0, 65536, (48, 64, 3)).astype(np.uint16)
    image, conversions = read_image(tf.io.encode_png(values).numpy(), (48, 64, 3))
    np.testing.assert_array_equal(image, values // 256)
    assert conversions.kinds == ("sixteen_bit",)


@pytest.mark.parametrize(("largest", "faint"), [(4095, True), (4096, False), (0, False)])
def test_16_bits_that_hold_12_are_listed_as_faint(largest, faint):
    values = np.zeros((48, 64), np.uint16)
    values[3, 4] = largest
    _, conversions = read_image(encode(values), (48, 64, 1))
    assert ("faint" in conversions.kinds) == faint


def test_cmyk_is_converted_and_listed():
    content = PLAIN["CMYK JPEG"]()
    image, conversions = read_image(content, (48, 64, 3))
    assert conversions.kinds == ("cmyk",)
    np.testing.assert_array_equal(image, read_like_tensorflow(content, 3))


@pytest.mark.parametrize("mode", ["P", "1"])
def test_palettes_and_bits_are_expanded_without_a_loss(mode):
    picture = Image.fromarray(PHOTO).convert(mode)
    channels = 3 if mode == "P" else 1
    image, conversions = read_image(encode(picture), (48, 64, channels))
    expected = np.asarray(picture.convert("RGB" if mode == "P" else "L"))
    np.testing.assert_array_equal(image, expected.reshape(48, 64, channels))
    assert conversions.kinds == ()


def test_colour_becomes_luma_and_grey_is_repeated():
    grey, conversions = read_image(encode(PHOTO), (48, 64, 1))
    assert np.abs(grey[..., 0] - PHOTO @ [0.299, 0.587, 0.114]).max() <= 1.01
    assert conversions.kinds == ("colour_to_grey",)
    colour, conversions = read_image(encode(PHOTO[..., 0]), (48, 64, 3))
    np.testing.assert_array_equal(colour, np.repeat(PHOTO[..., :1], 3, -1))
    assert conversions.kinds == ("grey_to_colour",)


def test_grey_pixels_stored_in_colour_keep_their_value_as_grey():
    stored = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, -1)
    image, _ = read_image(encode(stored), (16, 16, 1))
    np.testing.assert_array_equal(image, stored[..., :1])


@pytest.mark.parametrize(("profile", "listed"), [(b"a sRGB one", False), (b"Display P3", True)])
def test_a_colour_profile_other_than_srgb_is_listed(profile, listed):
    for image_format in ("PNG", "JPEG"):
        content = encode(PHOTO, image_format, icc_profile=profile)
        _, conversions = read_image(content, (48, 64, 3))
        assert conversions.kinds == (("profile",) if listed else ())


# Frames


@pytest.mark.parametrize("image_format", ["GIF", "PNG", "WEBP", "TIFF", "MPO"])
def test_of_several_frames_the_first_is_read_and_the_others_are_listed(image_format):
    frames = [Image.fromarray(np.full((48, 64), value, np.uint8)) for value in (40, 200, 90)]
    if image_format in ("WEBP", "MPO"):
        frames = [frame.convert("RGB") for frame in frames]
    options = {"lossless": True} if image_format == "WEBP" else {}
    content = encode(frames[0], image_format, save_all=True, append_images=frames[1:], **options)
    image, conversions = read_image(content, (48, 64, 3))
    assert (image == 40).all()
    assert "first_frame" in conversions.kinds
    assert conversions.format == ("JPEG" if image_format == "MPO" else image_format)


# Refused


def refusal(file, shape=(48, 64, 3)) -> str:
    with pytest.raises(
        UnreadableImageError, match=r"file must be an intact PNG.*Received: "
    ) as caught:
        read_image(file, shape)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(caught.value.reason)
    return caught.value.reason


WHOLE = {
    "PNG": encode(PHOTO),
    "JPEG": encode(PHOTO, "JPEG"),
    "progressive JPEG": encode(PHOTO, "JPEG", progressive=True),
    "GIF": encode(PHOTO, "GIF"),
    "WEBP": encode(PHOTO, "WEBP"),
    "BMP": encode(PHOTO, "BMP"),
    "TIFF": encode(PHOTO, "TIFF"),
}
PIXELS = {kind: read_image(content, (48, 64, 3))[0] for kind, content in WHOLE.items()}


@settings(deadline=None, derandomize=True, max_examples=150)
@given(kind=st.sampled_from(sorted(WHOLE)), share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused_or_misses_nothing_of_the_picture(kind, share):
    content = WHOLE[kind][: int(share * len(WHOLE[kind]))]
    # Any other error would fail the test.
    with contextlib.suppress(UnreadableImageError):
        image, _ = read_image(content, (48, 64, 3))
        np.testing.assert_array_equal(image, PIXELS[kind])


@pytest.mark.parametrize("kind", WHOLE)
def test_half_a_file_is_called_truncated(kind):
    reason = refusal(WHOLE[kind][: len(WHOLE[kind]) // 2])
    # The table of contents of a TIFF file may be at its end.
    assert reason == ("truncated" if kind != "TIFF" else reason)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(place=st.integers(8, len(WHOLE["PNG"]) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_png_file_is_noticed_or_leaves_the_picture_as_it_is(place, bit):
    content = bytearray(WHOLE["PNG"])
    content[place] ^= 1 << bit
    with contextlib.suppress(UnreadableImageError):
        image, _ = read_image(bytes(content), (48, 64, 3))
        np.testing.assert_array_equal(image, PHOTO)
        assert place >= len(content) - 12  # the mark of the end


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    kind=st.sampled_from(sorted(WHOLE)),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=9),
)
@pytest.mark.filterwarnings("ignore")
def test_damage_gives_an_image_or_a_reason_and_no_other_error(kind, flips):
    content = bytearray(WHOLE[kind])
    for place, byte in flips:
        content[place % min(len(content), 200)] ^= byte  # headers, where readers are fragile
    with contextlib.suppress(UnreadableImageError):
        image, _ = read_image(bytes(content), (8, 8, 3))
        assert image.shape == (8, 8, 3)


def png_header(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [body, b"IDAT" + zlib.compress(bytes(1000)), b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


@pytest.mark.parametrize("side", [10_000, 30_000])
def test_a_decompression_bomb_is_refused_by_its_header(side):
    assert refusal(png_header(side, side)) == "more than 89,478,485 pixels"


def test_the_limit_of_pixels_is_pillows(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert refusal(png_header(10_000, 100)) == "truncated"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 48 * 64)
    read_image(WHOLE["PNG"], (48, 64, 3))


def test_what_is_no_image_is_refused_with_the_reason(tmp_path):
    assert refusal(b"") == "empty"
    unknown = "not an image of a known format"
    assert refusal(b"no image") == unknown
    assert refusal(b"<svg xmlns='http://www.w3.org/2000/svg'/>") == unknown
    # Pillow reads these; EPS by starting Ghostscript.
    assert refusal(encode(PHOTO, "PPM")) == unknown
    assert refusal(encode(PHOTO, "EPS")) == unknown
    assert refusal(tmp_path / "gone.png") == "no such file or directory"
    assert refusal(tmp_path).startswith("IsADirectoryError")
    floats = encode(Image.fromarray(PHOTO[..., 0].astype(np.float32)), "TIFF")
    assert refusal(floats) == "32-bit values, whose range is unknown"
    lab = encode(Image.fromarray(PHOTO).convert("LAB"), "TIFF")
    assert refusal(lab) == "colours of the kind LAB"


def test_bad_arguments_are_named():
    with pytest.raises(DataError, match=r"fit must be one of crop, pad, stretch.*fit='zoom'"):
        read_image(WHOLE["PNG"], (8, 8, 1), fit="zoom")
    with pytest.raises(DataError, match=r"image_shape must be \(height, width, channels\)"):
        read_image(WHOLE["PNG"], (8, 8, 2))


# Headers


@pytest.mark.parametrize("kind", PLAIN)
def test_a_header_gives_the_format_the_size_and_whether_it_is_grey(kind):
    image_format = "JPEG" if "JPEG" in kind else "PNG"
    grey = "grey" in kind or kind == "one-bit PNG"
    assert files.header(PLAIN[kind]()) == (image_format, (48, 64), grey)


def test_a_header_is_read_upright_and_no_pixel_is_decoded():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encode(PHOTO, "JPEG", exif=exif)
    assert files.header(content) == ("JPEG", (64, 48), False)
    assert files.header(content[: len(content) - 500])[1] == (64, 48)
    assert files.header(encode(PHOTO, "TIFF", exif=exif)) == ("TIFF", (64, 48), False)
    png = encode(PHOTO)
    assert files.header(png[:200]) == ("PNG", (48, 64), False)
