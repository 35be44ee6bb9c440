"""The commands that fault_matrix.py tries, in a folder with the inputs of fault_inputs.py."""

import dataclasses
import shlex


@dataclasses.dataclass
class Command:
    name: str
    arguments: str
    copy: str = ""  # a file or folder that a try gets as its own, as try/NAME
    output: str = ""  # a file below try/ that is complete or absent
    resume: bool = False  # the command is repeated with --resume
    stdin: str = "/dev/null"
    # The fault "process" is for commands that start processes, because the OpenMP runtime ends the program
    # itself when a thread cannot be started (tests/e2e/e2e_limits.sh has what Norma does before that).
    processes: int = 0
    optional: bool = False  # left out if it ends with code 7: a library or program is not installed
    needs: str = ""  # left out without this file
    sample: int = 0  # number of tries per kind, if few calls can show a defect, with a smaller --sample

    def words(self):
        return shlex.split(self.arguments)


PREPARE = (
    "prepare --train train --valid valid --source-lang de --target-lang en --tokenizer moses --bpe-merges 20 "
    "--threads 1"
)
COMMANDS = [
    Command("prepare", PREPARE + " --output try/data", output="data/data.ini"),
    Command(
        "prepare text",
        "prepare --format text --tokenizer none --bpe-merges 0 --train lm.txt --threads 1 --output "
        "try/data",
        output="data/data.ini",
    ),
    Command(
        "prepare --alignments",
        "prepare --train train --valid valid --source-lang de --target-lang en --alignments links "
        "--encoding latin1 --valid-encoding utf-8 --tokenizer moses --bpe-merges 20 "
        "--subword-sampling true --drop-duplicates true --threads 1 --output try/data",
        output="data/data.ini",
    ),
    Command(
        "prepare archive, table",
        "prepare --train pairs.tgz/pairs/train,pairs.jsonl --valid-every 9 --source-lang de "
        "--target-lang en --tokenizer none --bpe-vocabulary 60 --joint false --punctuation moses "
        "--threads 1 --output try/data",
        output="data/data.ini", optional=True, sample=20,
    ),
    Command(
        "prepare documents",
        "prepare --format text --documents separated --train docs.txt --valid-every 9 --tokenizer "
        "byte_level --pretokenizer qwen2 --bpe-merges 20 --drop-duplicates true --threads 1 --output "
        "try/data",
        output="data/data.ini",
    ),
    Command(
        "prepare sentencepiece",
        "prepare --train train --valid valid --source-lang de --target-lang en --tokenizer "
        "sentencepiece --spm-vocab-size 320 --threads 1 --output try/data",
        output="data/data.ini", optional=True, processes=1,
    ),
    Command(
        "prepare --codes, dictionaries",
        "prepare --train train --source-lang de --target-lang en --codes data/codes.bpe --dict-source "
        "data/dict.source.txt --dict-target data/dict.target.txt --threads 1 --output try/data",
        output="data/data.ini",
    ),
    Command(
        "prepare --like model",
        "prepare --like run-translate --train few --valid valid --threads 1 --output try/data",
        output="data/data.ini",
    ),
    Command("train", "train translate.ini --run.quiet --run.folder try/run", resume=True),
    Command(
        "train --resume",
        "train translate.ini --run.quiet --run.folder try/run --resume",
        copy="run", resume=True,
    ),
    Command(
        "train --resume, damaged checkpoint",
        "train translate.ini --run.quiet --run.folder try/damaged --resume",
        copy="damaged", resume=True,
    ),
    Command("train lm", "train lm.ini --run.quiet --run.folder try/run", resume=True),
    Command("train tag", "train tag.ini --run.quiet --run.folder try/run", resume=True),
    Command("train classify", "train classify.ini --run.quiet --run.folder try/run", resume=True),
    Command("train images, records", "train images.ini --run.quiet --run.folder try/run", resume=True),
    Command(
        "train images, folder",
        "train images.ini --data.train png/train --data.valid png/valid --model.preset tiny-vit "
        "--model.norm layer --run.quiet --run.folder try/run",
        resume=True, optional=True,
    ),
    Command(
        "train --tune",
        "train lm --tune run-lm --data.folder lm-data --train.updates 4 --train.max_tokens 256 "
        "--run.profile= --device.threads 1 --run.quiet --run.folder try/run",
        resume=True,
    ),
    Command(
        "train --model.init_from",
        "train translate.ini --model.init_from run-translate --model.freeze enc --train.updates 4 "
        "--run.quiet --run.folder try/run",
        resume=True,
    ),
    Command(
        "train, guided alignment",
        "train translate.ini --data.folder aligned --model.alignment_head 1 --model.alignment_layer 1 "
        "--train.updates 4 --run.quiet --run.folder try/run",
        resume=True,
    ),
    Command(
        "train, BPE-dropout",
        "train translate.ini --data.folder aligned --data.subword_dropout 0.1 --train.epochs 2 "
        "--train.updates 0 --train.max_tokens 600 --run.quiet --run.folder try/run",
        resume=True,
    ),
    Command(
        "train, shards, instruments",
        "train translate.ini --model.norm rbn --model.decoder_norm power --train.shards 2 "
        "--norm.state worker --probe.every 2 --optim.name muon --schedule.name val-decay "
        "--train.validate_every 2 --train.score true --train.patience 2 --train.updates 4 --run.quiet "
        "--run.folder try/run",
        resume=True,
    ),
    Command(
        "train sentencepiece",
        "train translate.ini --data.folder pieces --data.subword_sampling 0.2 --train.updates 3 "
        "--run.quiet --run.folder try/run",
        resume=True, needs="pieces",
    ),
    Command(
        "train tag, vectors",
        "train tag.ini --data.vectors vectors.txt --model.word_dim 4 --model.bigram_dim 4 "
        "--train.epochs 1 --run.quiet --run.folder try/run",
        resume=True,
    ),
    Command(
        "train classify, n-grams",
        "train classify.ini --model.ngram_dim 4 --model.ngram_buckets 50 --model.ngram_weights idf "
        "--data.codes data/codes.bpe --train.epochs 1 --run.quiet --run.folder try/run",
        resume=True,
    ),
    Command("train --dry-run", "train translate.ini --dry-run --run.folder try/run"),
    Command("translate", "translate run-translate --beam 2", stdin="few.de"),
    Command(
        "translate --output",
        "translate run-translate few.de --output try/out",
        copy="out", output="out",
    ),
    Command(
        "translate --shortlist",
        "translate run-translate few.de --shortlist list --output try/out",
        copy="out", output="out",
    ),
    Command(
        "translate --json",
        "translate run-translate,run-batch --beam 2 --nbest 2 --json --alignment few.de --encoding "
        "latin1",
    ),
    Command(
        "translate --prefix, --constraints",
        "translate run-translate few.de --prefix few.prefix --constraints few.phrases --beam 4",
    ),
    Command(
        "translate --search sample, int8",
        "translate run-batch few.de --search sample --nbest 3 --precision int8",
    ),
    Command("translate pieces", "translate run-pieces few.de --output-format subword", needs="run-pieces"),
    Command(
        "rescore",
        "rescore run-translate few.de few.en --json --alignment --output try/out",
        copy="out", output="out",
    ),
    Command("shortlist", "shortlist data --threads 1 --output try/out", copy="out", output="out"),
    Command("tag", "tag run-tag names.few --input-format text --output try/out", copy="out", output="out"),
    Command("tag --json", "tag run-tag tags.few --json --scheme bioes --encoding latin1"),
    Command("tag --evaluate", "tag run-tag tags.few --evaluate"),
    Command(
        "classify",
        "classify run-classify reviews.few --probabilities --output try/out",
        copy="out", output="out",
    ),
    Command("classify csv", "classify run-classify reviews.csv --text text --json"),
    Command("classify --evaluate", "classify run-classify reviews.tsv --evaluate --json"),
    Command(
        "classify images",
        "classify run-images png/valid/red/0.png png/valid/green/1.png png/valid/blue/5.png "
        "--probabilities --output try/out",
        copy="out", output="out", optional=True,
    ),
    Command("classify images --evaluate", "classify run-images png/valid --evaluate --json", optional=True),
    Command("perplexity", "perplexity run-lm lm.few --json"),
    Command("perplexity --tokens", "perplexity run-bytes docs.few --tokens --documents separated"),
    Command("perplexity --context", "perplexity run-lm lm.few lm.few --context 4 --interval"),
    Command("perplexity of pairs", "perplexity run-translate --split valid --json"),
    Command(
        "generate file",
        "generate run-bytes docs.few --documents separated --samples 2 --tokens 6 --stop cat --json "
        "--output try/out",
        copy="out", output="out",
    ),
    Command("generate", "generate run-lm --prompt 'the dog' --tokens 12 --temperature 0.8 --seed 3"),
    Command("score bleu", "score bleu few.de --reference few.en --json"),
    Command("score chrf", "score chrf few.de --reference few.en --against few.en"),
    Command("score ter", "score ter few.de --reference few.en"),
    Command(
        "score bleu, pieces",
        "score bleu few.de --reference few.en,few.de --tokenize spm --spm-model "
        "pieces/sentencepiece.source.model --sentence",
        needs="pieces",
    ),
    Command("score accuracy", "score accuracy labels.few --reference labels.few --json"),
    Command("score f1", "score f1 spans.few --reference spans.few"),
    Command("inspect", "inspect run-translate"),
    Command("inspect --save", "inspect try/run --save --batches 2", copy="run", output="run/inspection.json"),
    Command(
        "inspect --checkpoints",
        "inspect run-batch --checkpoints --advise --json --batches 2 --gradient-batches 2",
    ),
    Command(
        "average",
        "average try/out run-translate/last.safetensors run-translate/best.safetensors",
        copy="out", output="out",
    ),
    Command("average run", "average try/out run-batch --last 2", copy="out", output="out", sample=20),
    Command("export --fold", "export run-batch -o try/out --fold --bf16", copy="out", output="out"),
    Command("export", "export run-translate/last.safetensors -o try/out --int8", copy="out", output="out"),
    Command(
        "convert --from ctranslate2",
        "convert fixture/ctranslate2 --from ctranslate2 -o try/out",
        copy="out", output="out",
    ),
    Command(
        "convert --from huggingface",
        "convert fixture/huggingface --from huggingface -o try/out",
        copy="out", output="out",
    ),
    Command(
        "convert --from huggingface, GPT-2",
        "convert fixture/huggingface-gpt2 --from huggingface -o try/out",
        copy="out", output="out",
    ),
    Command(
        "convert --from huggingface, Llama",
        "convert fixture/huggingface-llama --from huggingface -o try/out",
        copy="out", output="out",
    ),
    Command(
        "convert --from ctranslate2, lm",
        "convert fixture/ctranslate2-lm --from ctranslate2 -o try/out",
        copy="out", output="out",
    ),
    Command(
        "convert --from fairseq",
        "convert fixture/fairseq --from fairseq --heads 2 -o try/out",
        copy="out", output="out",
    ),
    Command(
        "convert --from marian",
        "convert marian/post.npz --from marian --vocabs marian/source.yml,marian/target.yml -o "
        "try/out",
        copy="out", output="out", optional=True, sample=20,
    ),
    Command("convert --to ctranslate2", "convert run-batch --to ctranslate2 -o try/folder"),
    Command("convert --to huggingface", "convert run-translate --to huggingface -o try/folder"),
    Command("convert --to huggingface, byte-level", "convert run-bytes --to huggingface -o try/folder"),
    Command("report", "report run-translate run-lm --no-samples -o try/out", copy="out", output="out"),
    Command("report --tensorboard", "report run-translate --no-samples -o try/out --tensorboard try/events"),
    Command(
        "report --png",
        "report runs/layer-1 runs/rms-1 --inspected inspected.json -o try/out --png try/png "
        "--png-width 240",
        output="out", processes=1,
    ),
    Command("baseline lm", "baseline lm.ini --data.folder lm-split --bootstrap 20 --json"),
    Command("baseline tag", "baseline tag.ini --bootstrap 20"),
    Command("baseline translate", "baseline translate.ini --bootstrap 20"),
    Command("baseline", "baseline classify.ini --bootstrap 20"),
    Command("baseline image", "baseline images.ini --bootstrap 20"),
    Command("compare --results", "compare --results runs"),
    Command(
        "compare",
        "compare classify.ini --norms layer,rms --compare.folder try/compare --train.epochs 1 --jobs "
        "1 --data.test reviews.tsv",
        output="compare/comparison.json", processes=2,
    ),
    Command("compare --results, json", "compare --results runs --format json"),
    Command(
        "compare --grid",
        "compare lm.ini --norms rms --grid model.heads=1,2 --score-grid --average 2 "
        "--train.save_every 1 --compare.folder try/compare --train.updates 2 --jobs 1 --data.folder "
        "lm-split --format latex",
        output="compare/comparison.json", processes=2,
    ),
    Command("tokenize", "tokenize few.de --like run-translate"),
    Command("subword", "subword few.de --like run-translate"),
    Command(
        "tokenize --output",
        "tokenize docs.few --tokenizer byte_level --encoding latin1 --output try/out",
        copy="out", output="out",
    ),
    Command(
        "subword --undo",
        "subword --undo docs.few --like run-bytes --output try/out",
        copy="out", output="out",
    ),
    Command(
        "subword pieces",
        "subword few.de --spm-model pieces/sentencepiece.source.model",
        sample=20, needs="pieces",
    ),
    Command(
        "normalize pieces",
        "normalize few.de --spm-model pieces/sentencepiece.source.model",
        needs="pieces",
    ),
    Command(
        "detokenize --like",
        "detokenize few.de --like data --side target --output try/out",
        copy="out", output="out",
    ),
    Command("normalize", "normalize few.de --form nfkc"),
    Command("detokenize", "detokenize few.de"),
    Command("compressed text", "tokenize few.de.gz"),
    Command("recipes", "recipes lm"),
    Command("help", "help train all"),
    Command("manual", "compare --manual"),
    Command("completion", "completion bash"),
]
