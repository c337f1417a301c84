// Stands in for SentencePiece's header, which the wheel of pytorch-tokenizers includes and does not bring:
// its users hold a pointer to this class and nothing else.
#pragma once

namespace sentencepiece {
class SentencePieceProcessor;
}  // namespace sentencepiece
