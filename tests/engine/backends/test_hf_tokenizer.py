from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from semops.engine.backends.hf_tokenizer import MARKER, HfTokenizer
from semops.errors import EngineError, UnsupportedError

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

CHATML = (
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
)
DROPS_SYSTEM = CHATML.replace(
    "%}{{ '<|start|>' + m", "if m['role'] != 'system' %}{{ '<|start|>' + m", 1
)
THINKS = CHATML.replace(
    "assistant\n' }}",
    "assistant\n' }}{% if enable_thinking is not defined or enable_thinking %}{{ '<think>' }}{% endif %}",
)
SPECIAL = ["<|start|>", "<|end|>", "<pad>"]


def byte_level(extra=()):
    """Return a Rust tokenizer whose vocabulary is the 256 bytes, with control tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[])
    rust = tokenizers.Tokenizer(model)
    rust.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = tokenizers.decoders.ByteLevel()
    rust.add_special_tokens(SPECIAL)
    rust.add_tokens(list(extra))
    return rust


def wrap(rust, template=CHATML):
    hf = transformers.PreTrainedTokenizerFast(tokenizer_object=rust, pad_token="<pad>")
    hf.chat_template = template
    return hf


@pytest.fixture(name="hf")
def hf_fixture():
    return wrap(byte_level())


@pytest.fixture(name="tokenizer")
def tokenizer_fixture(hf):
    return HfTokenizer(hf)


def test_text_comes_back(tokenizer):
    text = "Grüße, 世界!\n\n  <b>a</b> \t"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_empty_text_has_no_ids(tokenizer):
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("token", SPECIAL)
def test_control_tokens_in_text_stay_text(hf, tokenizer, token):
    control = hf.convert_tokens_to_ids(token)
    text = f"good{token}bad"
    assert control in hf.encode(text, add_special_tokens=False)
    assert control not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_token_declared_as_ordinary_stays_text():
    hf = wrap(byte_level(extra=["<think>", "\n\n"]), THINKS)
    tokenizer = HfTokenizer(hf)
    ids = tokenizer.encode("<think>a\n\n")
    assert hf.convert_tokens_to_ids("<think>") not in ids
    assert hf.convert_tokens_to_ids("\n\n") in ids, (
        "an added token for white space is no control token"
    )


def test_unigram_vocabulary_does_not_find_its_control_tokens():
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("<", -3.0), ("s", -3.0), (">", -3.0), ("a", -2.0)]
    rust = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0))
    rust.add_special_tokens(["<unk>", "<s>"])
    tokenizer = HfTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=rust))
    assert tokenizer.encode("a<s>a") == [5, 2, 3, 4, 5]
    assert tokenizer.encode("aéa") == [5, 0, 5], "unknown characters keep their id"


def test_nothing_is_added_and_nothing_is_cut():
    rust = byte_level()
    rust.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", rust.token_to_id("<|start|>"))]
    )
    rust.enable_truncation(4)
    rust.enable_padding(length=4)
    assert len(HfTokenizer(wrap(rust)).encode("abcdef")) == 6
    assert len(HfTokenizer(wrap(rust)).encode("a")) == 1


def test_chat_frame_holds_control_tokens_and_opens_the_answer(hf, tokenizer):
    head, tail = tokenizer.chat_frame("Be brief.")
    assert tokenizer.decode(head) == "<|start|>system\nBe brief.<|end|>\n<|start|>user\n"
    assert tokenizer.decode(tail) == "<|end|>\n<|start|>assistant\n"
    assert head[0] == hf.convert_tokens_to_ids("<|start|>")
    assert tail[0] == hf.convert_tokens_to_ids("<|end|>")


def test_chat_frame_around_text_is_the_template_rendered(hf, tokenizer):
    head, tail = tokenizer.chat_frame("Sys")
    whole = hf.apply_chat_template(
        [{"role": "system", "content": "Sys"}, {"role": "user", "content": "row"}],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=False,
    )
    assert [*head, *tokenizer.encode("row"), *tail] == whole


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM])
def test_system_text_is_folded_into_the_user_message(template):
    tokenizer = HfTokenizer(wrap(byte_level(), template))
    head, _ = tokenizer.chat_frame("Sys")
    assert tokenizer.decode(head) == "<|start|>user\nSys\n\n"


def test_no_system_text_gives_no_system_message(tokenizer):
    head, _ = tokenizer.chat_frame("")
    assert tokenizer.decode(head) == "<|start|>user\n"


def test_thinking_is_switched_off():
    tokenizer = HfTokenizer(wrap(byte_level(), THINKS))
    _, tail = tokenizer.chat_frame("Sys")
    assert "<think>" not in tokenizer.decode(tail)


def test_frame_is_rendered_once(hf, tokenizer, monkeypatch):
    frame = tokenizer.chat_frame("Sys")
    monkeypatch.setattr(hf, "chat_template", "tomorrow's date " + CHATML)
    assert tokenizer.chat_frame("Sys") == frame


@pytest.mark.parametrize("template", ["no message at all", CHATML + CHATML])
def test_template_that_cannot_be_split_is_unsupported(template):
    tokenizer = HfTokenizer(wrap(byte_level(), template))
    with pytest.raises(UnsupportedError, match="exactly once"):
        tokenizer.chat_frame("Sys")


def test_missing_template_is_unsupported():
    tokenizer = HfTokenizer(wrap(byte_level(), None))
    with pytest.raises(UnsupportedError, match="prompt_style"):
        tokenizer.chat_frame("Sys")


def test_slow_tokenizer_is_refused():
    with pytest.raises(EngineError, match=r"tokenizer\.json"):
        HfTokenizer(object())


def test_loads_from_a_folder(tmp_path, hf):
    hf.save_pretrained(tmp_path)
    assert HfTokenizer.load(str(tmp_path)).chat_frame("Sys") == HfTokenizer(hf).chat_frame("Sys")


def test_the_given_tokenizer_is_not_changed(hf, tokenizer):
    tokenizer.encode("<|end|>")
    assert hf.backend_tokenizer.encode_special_tokens is False


def test_many_threads_get_the_same_ids(tokenizer):
    texts = [f"row {i} <|end|> " * 20 for i in range(40)]
    wanted = [tokenizer.encode(text) for text in texts]
    barrier = threading.Barrier(4)

    def work(_):
        barrier.wait(timeout=30)
        tokenizer.chat_frame("Sys")
        return [tokenizer.encode(text) for text in texts]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [wanted] * 4


def test_marker_survives_trimming_and_escaping():
    assert MARKER.isalpha()
