# Shows W78, W79, W80
"""Images are described by a vision model, if one is configured."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image, ImageChops

from flowengine import Engine
from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.port import ModelFacts
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine_documents.picture import NO_DESCRIPTION
from flowengine_envs.documents.converting import convert
from flowengine_envs.sandboxes.processes import has
from tests.envs.documents.written_pdf import pdf

EYES = "scripted/eyes"
GPS, MAKE = 0x8825, 271


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not has("bwrap"):
        pytest.skip("no bubblewrap: apt-get install bubblewrap")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "harbour.jpg").write_bytes(photo())
    return tmp_path


@pytest.fixture
def eyes() -> Iterator[ScriptedModel]:
    model = ScriptedModel([{"text": "# A harbour\n\nThree ships."}, {"text": "Three."}])
    register(EYES, model)
    yield model
    unregister(EYES)


def photo(size: tuple[int, int] = (400, 300)) -> bytes:
    """Return a picture whose EXIF data names its camera and location."""
    exif = Image.Exif()
    exif[MAKE] = "Acme"
    exif.get_ifd(GPS)[2] = (54.0, 19.0, 12.0)
    exif[274] = 6  # rotated by 90°
    made = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(made, "JPEG", exif=exif)
    return made.getvalue()


def read(arguments: dict[str, Any], tool: str = "read_document", **config: Any) -> Any:
    made = {
        "flowengine": 1,
        "id": "seeing",
        "environments": {"documents": {"kind": "documents", "config": config}},
        "steps": [{"id": "read", "call": f"std.{tool}", "with": arguments}],
        "outputs": {"document": "${{ steps.read.output }}"},
    }
    Path("flow.yaml").write_text(yaml.safe_dump(made))
    with Engine("store", workdir=".") as engine:
        result = engine.run("flow.yaml")
    assert result.outputs is not None, result.error
    return result.outputs["document"]


def sent(model: ScriptedModel, number: int = 0) -> tuple[str, str, bytes]:
    """Return the text, the media type and the image of a request."""
    [message] = model.requests[number].messages
    text, image = message["content"]
    kind, _, data = image["image_url"]["url"].removeprefix("data:").partition(";base64,")
    assert (message["role"], text["type"], image["type"]) == ("user", "text", "image_url")
    return text["text"], kind, base64.b64decode(data)


def test_an_image_is_described(eyes: ScriptedModel) -> None:
    document = read({"path": "harbour.jpg"}, vision_model=EYES)

    assert document["markdown"].endswith("## Description\n\n# A harbour\n\nThree ships.")
    assert document["markdown"].startswith("Image: JPEG, 400 x 300 pixels")
    assert "picture" not in document
    assert NO_DESCRIPTION not in document["notes"]
    text, kind, data = sent(eyes)
    assert text.startswith("Describe this image")
    assert kind == "image/png"
    assert Image.open(io.BytesIO(data)).size == (300, 400)  # upright again


def test_what_is_sent_says_nothing_of_where_it_was_taken(eyes: ScriptedModel) -> None:
    with Image.open("harbour.jpg") as original:
        assert original.getexif().get_ifd(GPS)
    document = read({"path": "harbour.jpg"}, vision_model=EYES)
    image = Image.open(io.BytesIO(sent(eyes)[2]))
    assert not image.getexif()
    assert not image.info
    assert "54" not in document["markdown"]


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("size", "seen"), [((6000, 3000), (784, 1568)), ((100, 10_000), (1568, 16))]
)
def test_large_images_are_scaled(
    size: tuple[int, int], seen: tuple[int, int], eyes: ScriptedModel, folder: Path
) -> None:
    (folder / "large.jpg").write_bytes(photo(size))
    read({"path": "large.jpg"}, vision_model=EYES)
    data = sent(eyes)[2]
    assert Image.open(io.BytesIO(data)).size == seen
    assert len(data) < 3_000_000


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("model", "told"),
    [
        (ScriptedModel([ModelError("it is down", retryable=False)]), "it is down"),
        (ScriptedModel([{"text": "  "}]), "returned no description"),
        (ScriptedModel([], facts=ModelFacts(vision=False)), "takes no images"),
    ],
)
def test_without_a_description_the_image_still_gives_something(
    model: ScriptedModel, told: str
) -> None:
    register(EYES, model)
    try:
        document = read({"path": "harbour.jpg"}, vision_model=EYES)
    finally:
        unregister(EYES)
    assert document["markdown"] == "Image: JPEG, 400 x 300 pixels\n\n- camera: Acme"
    [note] = [note for note in document["notes"] if "no description" in note]
    assert told in note


def scan(path: Path, *modes: str, size: tuple[int, int] = (600, 800)) -> None:
    """Write a PDF whose pages are images, like a scanner's output."""
    first, *more = (Image.linear_gradient("L").resize(size).convert(mode) for mode in modes)
    first.save(path, "PDF", save_all=True, append_images=more)


@pytest.mark.endurance
def test_scanned_pages_are_described_at_their_places(eyes: ScriptedModel, folder: Path) -> None:
    scan(folder / "letter.pdf", "1", "RGB")
    document = read({"path": "letter.pdf", "question": "Whose is it?"}, vision_model=EYES)

    told = "Description of the scanned page:"
    assert document["markdown"] == (
        f"<!-- page 1 -->\n\n{told}\n\n# A harbour\n\nThree ships.\n\n"
        f"<!-- page 2 -->\n\n{told}\n\nThree."
    )
    for part in document["parts"]:
        assert document["markdown"][part["start"] :].startswith(f"<!-- page {part['number']} -->")
    assert "pictures" not in document
    for number in range(2):
        text, _, data = sent(eyes, number)
        assert text.endswith("In particular: Whose is it?")
        assert Image.open(io.BytesIO(data)).size == (600, 800)


@pytest.mark.endurance
def test_only_so_many_pages_of_a_scan_are_described(eyes: ScriptedModel) -> None:
    scan(Path("letter.pdf"), "L", "L", "L")
    document = read({"path": "letter.pdf"}, vision_model=EYES, pictures=2)

    assert len(eyes.requests) == 2
    assert document["truncated"]
    assert "scanned pages described: 2 (limit 'pictures'). Others are not" in document["notes"]


@pytest.mark.endurance
def test_who_reads_on_is_told_of_further_pages(eyes: ScriptedModel) -> None:
    scan(Path("letter.pdf"), "L", "L")
    document = read({"path": "letter.pdf", "page": 1}, vision_model=EYES, pictures=1)

    assert len(eyes.requests) == 2
    assert document["markdown"].endswith("Description of the scanned page:\n\nThree.")
    assert not document["truncated"]


@pytest.mark.endurance
def test_what_is_no_scan_is_not_described(eyes: ScriptedModel, folder: Path) -> None:
    scan(folder / "logo.pdf", "L", size=(90, 90))
    read({"path": "logo.pdf"}, vision_model=EYES)
    scan(folder / "bomb.pdf", "L")
    data = (folder / "bomb.pdf").read_bytes()
    (folder / "bomb.pdf").write_bytes(data.replace(b"/Width 600", b"/Width 999999999"))
    document = read({"path": "bomb.pdf"}, vision_model=EYES)

    assert eyes.requests == []
    assert any("page 1 is not described: its images cannot be read: it has" in note
               for note in document["notes"])  # fmt: skip


def strips(count: int = 8, rotate: int = 0) -> bytes:
    """Return a PDF whose page is an image in horizontal strips, like some scanners' output."""
    whole = Image.linear_gradient("L").resize((600, 800))
    high = 800 // count
    kids = f"<< /Type /Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 600 800] /Rotate {rotate} >>"
    names = " ".join(f"/S{at} {5 + at} 0 R" for at in range(count))
    page = (
        f"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /XObject << {names} >> >> >>"
    )
    drawn = "\n".join(
        f"q 600 0 0 {high} 0 {800 - high * (at + 1)} cm /S{at} Do Q" for at in range(count)
    )
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", kids, page]
    objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    made = [each.encode() for each in objects]
    for at in range(count):
        strip = whole.crop((0, at * high, 600, (at + 1) * high)).tobytes()
        head = (
            "<< /Type /XObject /Subtype /Image /ColorSpace /DeviceGray /BitsPerComponent 8 "
            f"/Width 600 /Height {high} /Length {len(strip)} >>\nstream\n"
        )
        made.append(head.encode() + strip + b"\nendstream")
    return pdf(*made)


def pixels(picture: str) -> Image.Image:
    """Return the image as prepared for a model, in grayscale."""
    return Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))).convert("L")


def test_a_scan_in_strips_is_put_together() -> None:
    whole = Image.linear_gradient("L").resize((600, 800))
    for rotate, turn in ((0, None), (90, Image.Transpose.ROTATE_270)):
        found = convert(strips(rotate=rotate), picture=True)

        [picture] = found.pictures.values()
        seen = pixels(picture)
        expected = whole if turn is None else whole.transpose(turn)
        assert seen.size == expected.size
        assert ImageChops.difference(seen, expected).getextrema()[1] <= 2  # type: ignore[operator]
        assert found.notes == ["no text on page 1. Images there: 8, so it may be a scan"]


@pytest.mark.parametrize(("default", "seen"), [("00", 255), ("04", 0)], ids=["white", "black"])
def test_a_scan_in_jbig2_is_decoded(default: str, seen: int) -> None:
    side = (400).to_bytes(4, "big").hex()
    page = bytes.fromhex(f"00000000 30 00 01 00000013 {side} {side} {'00' * 8} {default} 0000")
    data = pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 400 400] >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /XObject << /S 5 0 R >> >> >>",
        b"<< /Length 29 >>\nstream\n400 0 0 400 0 0 cm\n/S Do    \nendstream",
        b"<< /Type /XObject /Subtype /Image /ColorSpace /DeviceGray /BitsPerComponent 1 /Width 400 "
        b"/Height 400 /Filter /JBIG2Decode /Length %d >>\nstream\n%b\nendstream"
        % (len(page), page),
    )

    [picture] = convert(data, picture=True).pictures.values()
    assert pixels(picture).getextrema() == (seen, seen)


@pytest.mark.endurance
def test_a_damaged_image_is_told_by_what_is_known(eyes: ScriptedModel, folder: Path) -> None:
    (folder / "cut.jpg").write_bytes(photo((4000, 3000))[:20_000])
    document = read({"path": "cut.jpg"}, vision_model=EYES)
    assert "4000 x 3000" in document["markdown"]
    assert "no description of the image: it cannot be read" in document["notes"][0]
    assert eyes.requests == []


def test_a_drawing_in_svg_is_text_and_fetches_nothing() -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="http://127.0.0.1:1/"/></svg>'
    document = convert(svg, "a.svg", picture=True)
    assert (document.format, document.pictures) == ("text", {})
    assert "<image" in document.markdown
