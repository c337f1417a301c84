"""Opens two checkpoints with transformers and fails where their logits differ by a bit: an exported one and the one it came from.

    compare_logits.py FOLDER FOLDER
"""

import sys

import torch
import transformers


def logits_of(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    unknown = {key: names for key, names in info.items() if names}
    if unknown:
        sys.exit(f"{folder}: {unknown}")
    tokens = torch.arange(1, 20).remainder(config.vocab_size).unsqueeze(0)
    inputs = {"decoder_input_ids": tokens} if config.is_encoder_decoder else {}
    with torch.no_grad():
        return model.eval()(input_ids=tokens, **inputs).logits


if __name__ == "__main__":
    one, other = (logits_of(folder) for folder in sys.argv[1:3])
    if not torch.equal(one, other):
        sys.exit(f"logits differ by up to {(one - other).abs().max().item()}")
    print(f"equal logits: {list(one.shape)}")
