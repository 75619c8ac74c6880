"""Images beside placeholders of no image: two prompts with equal tokens that hold other KV."""

from hypothesis import given

from kvproof.connectors.drawn import moved
from kvproof.connectors.plan import PLACEHOLDER, Image, SubmitRequest

ALBUM = (Image(0, 2, 3), Image(1, 6, 2))


@given(moved(ALBUM))
def test_a_moved_image_changes_the_prompt_and_no_token(
    albums: tuple[tuple[Image, ...], ...],
) -> None:
    one, other = (SubmitRequest(0, 16, images=album) for album in albums)
    assert one.tokens_of_prompt == other.tokens_of_prompt
    assert one.prompt != other.prompt
    assert [each.name for each in one.whole] == [each.name for each in other.whole]
    assert one.prompt.count(PLACEHOLDER) == other.prompt.count(PLACEHOLDER) > 0
