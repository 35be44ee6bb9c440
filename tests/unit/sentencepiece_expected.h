/* Expected results of test_sentencepiece.c, one per line of its text: spm_encode, and spm_decode of that, of
 * SentencePiece 0.1.97. */
typedef struct expected_line {
    const char *pieces, *text;
} expected_line;

static const expected_line expected_unigram[] = {
    {"", ""},
    {"", ""},
    {"▁the ▁the", "the the"},
    {"▁the ▁ he th e", "the hethe"},
    {"▁ 東 京都", "東京都"},
    {"▁ 京都 の 東京", "京都の東京"},
    {"▁ A カ ガ カ ラ A ▁the", "AカガカラA the"},
    {"▁th é <sep> th e", "thé<sep>the"},
    {"▁the <s> ▁ <0x41>", "the <0x41>"},
};
static const expected_line expected_unigram_bytes[] = {
    {"", ""},
    {"", ""},
    {"▁the ▁the", "the the"},
    {"▁the ▁ he th e", "the hethe"},
    {"▁ 東 京都", "東京都"},
    {"▁ 京都 <0xE3> <0x81> <0xAE> 東京", "京都の東京"},
    {"▁ A <0xE3> <0x82> <0xAB> ガ <0xE3> <0x82> <0xAB> ラ A ▁the", "AカガカラA the"},
    {"▁th <0xC3> <0xA9> <sep> th e", "thé<sep>the"},
    {"▁the <0x3C> <0x73> <0x3E> ▁ <0x3C> <0x30> <0x78> <0x34> <0x31> <0x3E>", "the<s> <0x41>"},
};
static const expected_line expected_unigram_suffix[] = {
    {"", ""},
    {"", ""},
    {"th e ▁the ▁", "the the "},
    {"th e ▁ he th e ▁", "the hethe "},
    {"東 京都 ▁", "東京都 "},
    {"京都 の 東京 ▁", "京都の東京 "},
    {"Ａカｶﾞｶ ラ Ａ　 th e ▁", "ＡカｶﾞｶラＡ　the "},
    {"th é <sep> th e ▁", "thé<sep>the "},
    {"th e <s> ▁ <0x41> ▁", "the <0x41> "},
};
static const expected_line expected_bpe[] = {
    {"", ""},
    {"", ""},
    {"▁the ▁the", "the the"},
    {"▁the ▁ he th e", "the hethe"},
    {"▁ 東 京都", "東京都"},
    {"▁ 京都 <0xE3> <0x81> <0xAE> 東京", "京都の東京"},
    {"▁ A <0xE3> <0x82> <0xAB> ガ <0xE3> <0x82> <0xAB> ラ A ▁the", "AカガカラA the"},
    {"▁th <0xC3> <0xA9> <sep> th e", "thé<sep>the"},
    {"▁the <0x3C> <0x73> <0x3E> ▁ <0x3C> <0x30> <0x78> <0x34> <0x31> <0x3E>", "the<s> <0x41>"},
};
static const expected_line expected_bpe_spaces[] = {
    {"", ""},
    {"▁▁ ▁", "   "},
    {"th e ▁the", "the the"},
    {"▁ ▁the ▁▁ he th e ▁", "  the  hethe "},
    {"東 京都", "東京都"},
    {"京都 の 東京", "京都の東京"},
    {"Ａカｶﾞｶ ラ Ａ　 th e", "ＡカｶﾞｶラＡ　the"},
    {"th é <sep> th e", "thé<sep>the"},
    {"th e <s> ▁ <0x41>", "the <0x41>"},
};
static const expected_line expected_characters[] = {
    {"", ""},
    {"", ""},
    {"▁ t h e ▁ t h e", "the the"},
    {"▁ t h e ▁ h e t h e", "the hethe"},
    {"▁ 東 京都", "東京都"},
    {"▁ 京都 の 東 京", "京都の東京"},
    {"▁ A カ ガ カ ラ A ▁ t h e", "AカガカラA the"},
    {"▁ t h é <sep> t h e", "thé<sep>the"},
    {"▁ t h e <s> ▁ <0x41>", "the <0x41>"},
};
