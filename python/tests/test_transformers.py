"""Models of transformers, from their configuration: what replace_norms does to them."""
import copy
import importlib
import inspect
import pathlib
import re
import subprocess
import sys
import types
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed", minversion="4.56")

import norma  # noqa: E402
import norma.torch as nt  # noqa: E402
from conftest import SOURCE  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

SMALL = dict(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA = {**SMALL, "num_key_value_heads": 2}
TEXT = torch.randint(3, 60, (3, 9), generator=torch.Generator().manual_seed(1))
MASK = torch.ones(3, 9, dtype=torch.int64)
MASK[1, 6:] = MASK[2, 4:] = 0
LABELS = torch.where(MASK.bool(), TEXT, -100)
WITH_TEXT = {"input_ids": TEXT, "attention_mask": MASK, "labels": LABELS}
IMAGES = {"pixel_values": torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2)),
          "labels": torch.tensor([0, 1, 0])}
SERIES = {"past_values": torch.randn(3, 32, 2, generator=torch.Generator().manual_seed(3)),
          "future_values": torch.randn(3, 8, 2)}
# name, class, configuration, inputs, number of norms; whether all of them see tokens [batch, length, width]
MODELS = [
    ("GPT2", "GPT2LMHeadModel", dict(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                     bos_token_id=1, eos_token_id=2), WITH_TEXT, 5),
    ("Llama", "LlamaForCausalLM", LLAMA, WITH_TEXT, 5),
    ("Mistral", "MistralForCausalLM", LLAMA, WITH_TEXT, 5),
    ("Qwen3", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 8}, WITH_TEXT, 9),
    ("Gemma3Text", "Gemma3ForCausalLM", {**LLAMA, "head_dim": 8, "query_pre_attn_scalar": 8}, WITH_TEXT, 13),
    ("Olmo2", "Olmo2ForCausalLM", LLAMA, WITH_TEXT, 9),
    ("Bert", "BertForSequenceClassification", SMALL, {"input_ids": TEXT, "attention_mask": MASK,
                                                      "labels": torch.tensor([0, 1, 0])}, 5),
    ("T5", "T5ForConditionalGeneration", dict(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2,
                                              num_heads=4, pad_token_id=0,
                                              decoder_start_token_id=0, dropout_rate=0.0),
     {"input_ids": TEXT, "attention_mask": MASK, "labels": LABELS[:, :7].contiguous(),
      "decoder_attention_mask": MASK[:, :7]}, 12),
    ("ViT", "ViTForImageClassification", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                              intermediate_size=48, image_size=16,
                                              patch_size=4), IMAGES, 5),
    ("PatchTST", "PatchTSTForPrediction", dict(num_input_channels=2, context_length=32, patch_length=8,
                                               patch_stride=8, prediction_length=8,
                                               d_model=32, num_hidden_layers=2, num_attention_heads=4,
                                               ffn_dim=48, norm_type="layernorm"), SERIES, 4),
]
NAMES = [name for name, *_ in MODELS]
RMS_MODELS = "Llama", "Mistral", "Qwen3", "Gemma3Text", "Olmo2", "T5"


def model_of(name):
    _, kind, settings, inputs, count = next(one for one in MODELS if one[0] == name)
    torch.manual_seed(5)
    model = getattr(transformers, kind)(getattr(transformers, name + "Config")(**settings))
    for key, param in model.named_parameters():
        if "norm" in key.lower() or "ln_" in key:
            param.data += 0.1 * torch.randn_like(param)
    return model.eval(), inputs, count


def loss_of(model, inputs):
    return model(**inputs).loss


def replaced(model, type, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of eps
        return nt.replace_norms(model, type, **options)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_formula(name):
    """LayerNorm by `layer`, RMSNorm by `rms`: outputs and gradients as before, and names of the
    checkpoint."""
    model, inputs, count = model_of(name)
    new = copy.deepcopy(model)
    form = "rms" if name in RMS_MODELS else "layer"
    assert len(replaced(new, form)) == count
    assert list(new.state_dict()) == list(model.state_dict())
    a, b = loss_of(model, inputs), loss_of(new, inputs)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    a.backward(), b.backward()
    for (key, one), other in zip(model.named_parameters(), new.parameters()):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5, msg=key)
    model.load_state_dict(new.state_dict()), new.load_state_dict(model.state_dict())


def classes_of_norms():
    """Every class of transformers with RMSNorm or LayerNorm in its name, by folder and name."""
    found, norm = {}, re.compile(r"class \w*(RMS|Rms|Layer)[Nn]orm\w*\(")
    for path in sorted(pathlib.Path(transformers.models.__file__).parent.glob("*/modeling_*.py")):
        if norm.search(path.read_text(encoding="utf-8")):
            try:
                module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
            except ImportError:  # a package that is not installed
                continue
            for name, kind in vars(module).items():
                if (nt._recognize._NAMED.search(name) and getattr(kind, "__module__", "") == module.__name__
                        and inspect.isclass(kind) and issubclass(kind, nn.Module)):
                    found[path.parent.name, name] = kind
    return found


def instance(kind):
    """With 16 features; None: it needs something else."""
    config = types.SimpleNamespace(hidden_size=16, eps=1e-6, rms_norm_eps=1e-6, layer_norm_eps=1e-6)
    for arguments in ((16,), (config,), (16, 1e-6)):
        try:
            return kind(*arguments)
        except Exception:
            continue


def test_every_class_of_transformers():
    """What is recognized as a norm of tokens equals its replacement, with the same names, except where the
    formula is neither that of LayerNorm nor that of RMSNorm."""
    recognized, unknown, x = [], [], torch.randn(3, 5, 16) * 2 + 0.3
    for (folder, name), kind in classes_of_norms().items():
        old = instance(kind)
        if old is None or not nt._recognize.is_token_norm(old):
            continue
        with torch.no_grad():
            for param in old.parameters():
                param.uniform_(0.3, 1.2)
        model, form = nn.Sequential(copy.deepcopy(old)), nt._recognize.form_of(old)
        if not form.kind:
            unknown.append(name)
            continue
        nt.replace_norms(model, form.kind)
        with torch.no_grad():
            torch.testing.assert_close(model[0](x), old(x), rtol=1e-4, atol=1e-5, msg=f"{folder}.{name}")
        assert list(model[0].state_dict()) == list(old.state_dict()), name
        recognized.append(name)
    print(len(recognized), "recognized,", unknown)
    assert len(recognized) > 200 and len(unknown) <= 2
    assert not {"EomtLayerNorm2d", "SqueezeBertLayerNorm", "VitDetLayerNorm"} & {*recognized, *unknown}


@pytest.mark.parametrize("name", ["Gemma3Text", "Llama", "GPT2"])
def test_norms_that_are_replaced_twice(name):
    """The gains, their names and their offset are those of the model."""
    model, inputs, count = model_of(name)
    new, form, options = copy.deepcopy(model), "layer", {}
    if name in RMS_MODELS:
        form, options = "rms", {"epsilon": 1e-6, "epsilon_inside": True}
    assert len(replaced(new, "power")) == len(replaced(new, form, **options)) == count
    assert list(new.state_dict()) == list(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(loss_of(model, inputs), loss_of(new, inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("type", ["power", "rbn", "dyt"])
def test_training_and_files(name, type, tmp_path):
    """Five steps, the weight decay of the Trainer, and save_pretrained."""
    from transformers.trainer_pt_utils import get_parameter_names
    from transformers import Trainer
    model, inputs, count = model_of(name)

    def decayed(model):
        trainer = object.__new__(Trainer)
        return {key for key in trainer.get_decay_parameter_names(model)}
    before = decayed(model)
    assert get_parameter_names and len(replaced(model, type)) == count
    assert {key for key in decayed(model) if key in before or "alpha" not in key} == before
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = loss_of(model, inputs) + 0 * nt.penalty(model)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    model.eval()
    model.save_pretrained(tmp_path)
    loaded = nt.from_pretrained(model.__class__, tmp_path)
    for (key, one), other in zip(model.state_dict().items(), loaded.state_dict().values()):
        assert torch.equal(one, other), key
    with torch.no_grad():
        torch.testing.assert_close(loss_of(model, inputs), loss_of(loaded.eval(), inputs))
    assert all(norm._model_mask is None for norm in nt._models.norms_of(model))


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Bert", "T5"])
def test_padding_masks_are_those_of_the_call(name):
    """Running statistics after a training step do not depend on what is at padding."""
    states = []
    for padding in (0, 7):
        model, inputs, _ = model_of(name)
        replaced(model, "batch")
        model.train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        inputs = {**inputs, "input_ids": torch.where(MASK.bool(), TEXT, torch.tensor(padding))}
        if name == "T5":
            inputs["decoder_input_ids"] = torch.where(MASK[:, :7].bool(), TEXT[:, :7], torch.tensor(padding))
        loss_of(model, inputs)
        states.append({key: value.clone() for key, value in model.named_buffers() if "running" in key})
    assert states[0]
    for key, value in states[0].items():
        torch.testing.assert_close(value, states[1][key], rtol=1e-5, atol=1e-6, msg=key)


class Wrapper(nn.Module):
    """Its forward has no mask: it makes one for the model in it."""
    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, ids, lengths):
        mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
        return self.inner(ids, attention_mask=mask.float() if self.training else mask.long())


@pytest.mark.parametrize("name", ["GPT2", "Llama", "Bert"])
@pytest.mark.parametrize("way", ["wrapper", "backbone"])
def test_padding_masks_of_modules_within_the_model(name, way):
    """The model's forward makes the mask, or only a part of the model is called."""
    states = []
    for padding in (0, 7):
        model, _, _ = model_of(name)
        model = Wrapper(model) if way == "wrapper" else model
        replaced(model, "batch")
        for module in model.train().modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        text = torch.where(MASK.bool(), TEXT, torch.tensor(padding))
        if way == "wrapper":
            model(text, MASK.sum(1))
        else:
            model.base_model(text, attention_mask=MASK)
        states.append({key: value.clone() for key, value in model.named_buffers() if "running" in key})
    assert states[0]
    for key, value in states[0].items():
        torch.testing.assert_close(value, states[1][key], rtol=1e-5, atol=1e-6, msg=key)
    found = model.inner if way == "wrapper" else model
    found.base_model(TEXT)
    assert all(norm._model_mask is None for norm in nt._models.norms_of(model))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x, key_padding_mask=None):
        return x + self.linear(self.norm(x))


class Blocks(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks, self.reentrant = nn.ModuleList([Block(), Block()]), reentrant

    def forward(self, x, attention_mask):
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [True, False])
def test_masks_with_activation_checkpointing(reentrant):
    """The repeated forward pass of a block, which receives no mask, has the mask of the model's call."""
    model, x = Blocks(None), torch.randn(3, 9, 8)
    nt.replace_norms(model, "batch")
    other = copy.deepcopy(model)
    other.reentrant = reentrant
    grads = []
    for one in (model, other):
        given = x.clone().requires_grad_()
        one(given, MASK).square().sum().backward()
        grads.append([given.grad, *(param.grad for param in one.parameters())])
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="PyTorch before 2.15")
def test_masks_in_a_graph():
    model, inputs, _ = model_of("Llama")
    replaced(model, "batch")
    other = copy.deepcopy(model.train())
    graph = torch.compile(other, backend="aot_eager", fullgraph=True)
    for one in (model, graph):
        loss_of(one, inputs).backward()
    for (key, param), same in zip(model.named_parameters(), other.parameters()):
        torch.testing.assert_close(param.grad, same.grad, rtol=1e-5, atol=1e-7, msg=key)
    for (key, one), same in zip(model.named_buffers(), other.buffers()):
        torch.testing.assert_close(one, same, rtol=1e-5, atol=1e-7, msg=key)


def test_measurements_exclude_padding(tmp_path):
    """TID and the values of the callback, of a model with its own norms and with those of Norma: with a batch
    of one length, they are those of the tokens."""
    measured = []
    for type in (None, "layer"):
        for padded in (True, False):
            model, _, _ = model_of("GPT2")
            if type:
                replaced(model, type)
            text = torch.nn.functional.pad(TEXT[:, :4], (0, 5), value=9) if padded else TEXT[:, :4]
            batch = {"input_ids": text,
                     "attention_mask": (torch.arange(text.shape[1]) < 4).long().expand(3, -1)}
            sites = nt.tid(model, [batch, {key: value[:2] for key, value in batch.items()}])
            observed = nt._callback._Sites(model.train(), 8)
            observed.wanted = True
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
            for rows in (3, 2):
                model(**{key: value[:rows] for key, value in batch.items()})
            records = observed.records()
            observed.close()
            measured.append([value for one in sites for value in (one.mean, one.variance)])
            measured[-1] += records.values()
            assert len(sites) == 5 and len(records) == 4 and not [
                module for module in model.modules()
                if "_model_mask" in vars(module) and not isinstance(module, nt.Norm)]
    assert min(measured[0]) > 0
    for other in measured[1:]:
        assert other == pytest.approx(measured[0], rel=1e-4)


def test_a_mask_that_does_not_fit_warns():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)

        def forward(self, x, attention_mask=None):
            return self.norm(x[:, ::2])
    model = Halves()
    nt.replace_norms(model, "batch")
    with pytest.warns(UserWarning, match="norm 'batch': its batch statistics include padding"):
        model(torch.randn(2, 6, 8), attention_mask=torch.tensor([[1, 1, 1, 1, 1, 0], [1] * 6]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(2, 6, 8), attention_mask=torch.ones(2, 6))
        model(torch.randn(2, 6, 8))


def test_heads_as_many_as_tokens():
    """Norms of queries see [batch, heads, length, width]: the mask is that of the tokens, also if both axes
    have one length."""
    norm, mask = nt.BatchNorm(4), torch.tensor([[0, 0, 1], [0, 1, 1]], dtype=torch.bool)
    x = torch.randn(2, 3, 3, 4)  # batch, length, heads, width
    for tokens in (x, x.transpose(1, 2)):
        found = norm._mask_for(tokens, mask)
        assert torch.equal(found if tokens is x else found.transpose(1, 2), mask[:, :, None].expand(2, 3, 3))
    assert norm._mask_for(torch.randn(2, 5, 3, 4), mask).shape == (2, 5, 3)
    assert norm._mask_for(torch.randn(3, 3, 4), mask) is None


SHARDED = """
import copy, sys, torch, torch.distributed as dist
import norma.torch as nt
from test_transformers import model_of, replaced, loss_of
way, rank, n = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=n)
model, inputs, _ = model_of("Llama")
inputs = {name: tensor[rank::n] for name, tensor in inputs.items()}
replaced(model, "power")
one = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model).train(), broadcast_buffers=False)
if way == "fully_shard":
    from torch.distributed.fsdp import fully_shard
    other = copy.deepcopy(model).train()
    mesh = torch.distributed.init_device_mesh("cpu", (n,))
    for layer in other.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(other, mesh=mesh)
else:
    from torch.distributed.fsdp import FullyShardedDataParallel
    other = FullyShardedDataParallel(copy.deepcopy(model).train(), device_id=torch.device("cpu"))
for module in (one, other):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module.losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = module(**inputs).loss
        loss.backward()
        optimizer.step()
        module.losses.append(float(loss.detach()))
assert max(abs(a - b) for a, b in zip(one.losses, other.losses)) < 1e-5, (one.losses, other.losses)
assert one.losses[-1] < one.losses[0], one.losses
pairs = [(a, b) for a, b in zip(one.buffers(), other.buffers()) if a.is_floating_point() and a.dim() == 4]
assert pairs and all(a.any() and (a - b).abs().max() < 1e-5 for a, b in pairs)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("way", ["fully_shard", "FullyShardedDataParallel"])
def test_sharded(way, processes, tmp_path):
    """FSDP: the losses and running statistics of DistributedDataParallel, with other sentences in each
    process."""
    if not hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard"):
        pytest.skip("PyTorch without fully_shard")
    running = [subprocess.Popen([sys.executable, "-c", SHARDED, str(tmp_path / "store"), way, str(rank),
                                 str(processes)], stderr=subprocess.PIPE, text=True,
                                cwd=SOURCE / "python" / "tests") for rank in range(processes)]
    errors = [one.communicate(timeout=300)[1] for one in running]
    assert all(one.returncode == 0 for one in running), "\n".join(error[-3000:] for error in errors)


@pytest.mark.parametrize("package", ["torchao", "bitsandbytes"])
def test_quantizers_keep_the_norms(package):
    """They look for linear layers; norms, their masks and running statistics stay as they are."""
    quantizer = pytest.importorskip(package)
    model, inputs, count = model_of("Llama")
    replaced(model, "power")
    model.train()(**inputs)
    before, exact = copy.deepcopy(model.eval().state_dict()), loss_of(model, inputs)
    if package == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
        quantize_(model, Int8WeightOnlyConfig())
    else:
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.Linear):
                parent, _, key = name.rpartition(".")
                new = quantizer.nn.Linear8bitLt(module.in_features, module.out_features, bias=False,
                                                has_fp16_weights=False)
                new.load_state_dict({"weight": module.weight.data})
                setattr(model.get_submodule(parent), key, new.to("cpu"))
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nt.Norm)}
    assert len(norms) == count
    for name, norm in norms.items():
        for key, value in norm.state_dict().items():
            assert torch.equal(value, before[f"{name}.{key}"]), key
    with torch.no_grad():
        loss = loss_of(model, inputs)
    assert loss != exact and abs(float(loss - exact)) < 0.05


def test_models_are_those_of_the_page():
    """The table of docs/torch.md."""
    pytest.importorskip("accelerate")
    done = subprocess.run([sys.executable, str(SOURCE / "scripts" / "torch_models.py"), "--check"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


class Lines(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return {key: value[i % 3] for key, value in WITH_TEXT.items()}


def trained_by_trainer(tmp_path, type, **options):
    model, _, _ = model_of("GPT2")
    replaced(model, type, **options)
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=6, per_device_train_batch_size=3,
                                               logging_steps=2, report_to=[],
                                               use_cpu=True, save_strategy="no", weight_decay=0.1,
                                               disable_tqdm=True, eval_strategy="steps", eval_steps=3)
    return transformers.Trainer(model, arguments, train_dataset=Lines(), eval_dataset=Lines())


def test_callback_of_the_trainer(tmp_path):
    """The measurements are in the log, and the penalty in the loss: with a large factor the loss grows by
    it."""
    pytest.importorskip("accelerate")
    trainer = trained_by_trainer(tmp_path, "rbn")
    seen = []

    class Report(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))
    trainer.add_callback(Report())
    nt.Callback().add_to(trainer)
    trainer.train()
    assert {"norma/tid_mean", "norma/tid_variance", "norma/distance", "norma/effective_rank"} <= set(seen[0])
    assert all(value >= 0 for key, value in seen[0].items() if key.startswith("norma/"))
    assert seen[0]["norma/effective_rank"] > 1 and "norma/tid_mean" in trainer.state.log_history[0]
    assert 0 < seen[0]["norma/largest_singular_value"] < 1
    # the gap: that of the model of the last evaluation, whose running statistics stay as they are
    gaps = [one for one in seen if "eval_loss" in one]
    assert len(gaps) == 2 and all("norma/gap" in one for one in gaps)
    model, rows = copy.deepcopy(trainer.model), Lines()
    batch = {key: torch.stack([rows[i][key] for i in range(8)]) for key in WITH_TEXT}
    with torch.no_grad():
        evaluated = loss_of(model.eval(), batch)
        for norm in nt._models.norms_of(model):
            norm.train()
        expected = float(evaluated - loss_of(model, batch))
    batches = torch.utils.data.DataLoader(rows, batch_size=8)
    callback, model = nt.Callback(batches=1), trainer.model.eval()
    callback._open(model)
    assert callback._gap(model=model, eval_dataloader=batches) == {
        "norma/gap": pytest.approx(expected, abs=1e-5)} and expected != 0
    assert not callback._sites.moments  # the measurements are those of training
    callback.on_train_end()
    assert not any("observe" in str(hook) for module in trainer.model.modules()
                   for hook in module._forward_pre_hooks.values())
    first = []
    for factor in (0.0, 1e4):
        trainer = trained_by_trainer(tmp_path, "rbn", **{"lambda": factor, "nu": factor})
        trainer.add_callback(nt.Callback())
        trainer.train()
        first.append(trainer.state.log_history[0]["loss"])
    assert first[1] > 2 * first[0]
    with pytest.raises(ValueError, match="expected 'sum', 'mean' or 'none'"):
        nt.Callback(penalty="always")


def test_adapters_and_gradient_checkpointing():
    peft = pytest.importorskip("peft")
    model, inputs, _ = model_of("Llama")
    replaced(model, "power")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2,
                                                         modules_to_save=["norm"]))
    adapted.train()
    adapted(**inputs).loss.backward()  # with the mask of the call in the repeated forward pass, too
    assert any(param.grad is not None for key, param in adapted.named_parameters() if "lora" in key)


@pytest.mark.parametrize("saved", [True, False])
def test_files_of_adapters(saved, tmp_path):
    """modules_to_save keeps the norms and their running statistics; otherwise an adapter has neither."""
    peft = pytest.importorskip("peft")
    model, inputs, _ = model_of("Llama")
    new = copy.deepcopy(model)
    names = replaced(new, "power")
    adapted = peft.get_peft_model(new, peft.LoraConfig(target_modules=["q_proj"], r=2, task_type="CAUSAL_LM",
                                                       modules_to_save=names if saved else None)).train()
    optimizer = torch.optim.SGD([one for one in adapted.parameters() if one.requires_grad], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        adapted(**inputs).loss.backward()
        optimizer.step()
    adapted.eval().save_pretrained(tmp_path)
    replaced(model, "power")
    loaded = peft.PeftModel.from_pretrained(model, tmp_path).eval()
    with torch.no_grad():
        assert (loss_of(loaded, inputs) == loss_of(adapted, inputs)) == saved


def test_files_of_the_hub(tmp_path):
    """The name of a repository, here in the cache of the hub."""
    model, inputs, _ = model_of("Llama")
    replaced(model, "rbn")
    model.train()(**inputs)
    revision = "a" * 40
    model.eval().save_pretrained(tmp_path / "models--me--x" / "snapshots" / revision)
    (tmp_path / "models--me--x" / "refs").mkdir()
    (tmp_path / "models--me--x" / "refs" / "main").write_text(revision)
    options = dict(cache_dir=str(tmp_path), local_files_only=True)
    loaded = nt.from_pretrained(transformers.AutoModelForCausalLM, "me/x", **options).eval()
    with torch.no_grad():
        assert loss_of(model, inputs) == loss_of(loaded, inputs)
    for name in ("me/y", tmp_path):
        with pytest.raises(norma.UsageError, match="no config.json; expected a folder"):
            nt.from_pretrained(transformers.AutoModelForCausalLM, name, **options)


def test_a_quantizer_that_replaces_the_class():
    """optimum-quanto replaces every LayerNorm if it quantizes activations: an error, unless the norms are
    excluded or are not of that class."""
    quanto = pytest.importorskip("optimum.quanto")
    model, inputs, _ = model_of("GPT2")
    plain, names = copy.deepcopy(model), replaced(model, "power")
    replaced(plain, "power", keep_class=False)
    excluded, exact = copy.deepcopy(model), loss_of(model, inputs)
    quanto.quantize(model, weights=quanto.qint8, activations=quanto.qint8)
    with pytest.raises(TypeError, match="norm of Norma, which computes no LayerNorm"):
        loss_of(model, inputs)
    quanto.quantize(plain, weights=quanto.qint8, activations=quanto.qint8)
    quanto.quantize(excluded, weights=quanto.qint8, activations=quanto.qint8, exclude=names)
    for one in (plain, excluded):
        assert len(nt._models.norms_of(one)) == 5 and abs(float(loss_of(one, inputs) - exact)) < 0.05


def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self, factor):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(6, 8), nt.RBN(8, lambda_=factor), nn.Linear(8, 1))
            self.logged = 0

        def training_step(self, batch, i):
            return self.model(batch).square().mean()

        def validation_step(self, batch, i):
            loss = self.model(batch).square().mean()
            self.logged += 1
            self.log("valid", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)
    weights = []
    for factor in (0.0, 100.0):
        torch.manual_seed(3)
        module = Module(factor)
        trainer = lightning.Trainer(max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False,
                                    callbacks=[nt.Callback()], default_root_dir=tmp_path,
                                    enable_model_summary=False)
        rows = torch.utils.data.DataLoader(torch.randn(12, 6), batch_size=4)
        trainer.fit(module, rows, rows)
        assert "norma/tid_mean" in trainer.logged_metrics
        model = copy.deepcopy(module.model).eval()
        gaps = []
        for batch in rows:
            inference = model(batch).square().mean()
            with nt._tid.measuring(model):
                gaps.append(float(inference - model(batch).square().mean()))
        assert float(trainer.callback_metrics["norma/gap"]) == pytest.approx(sum(gaps) / 3, abs=1e-5)
        valid = sum(float(model(batch).square().mean()) for batch in rows) / 3
        assert float(trainer.callback_metrics["valid"]) == pytest.approx(valid, rel=1e-5)  # not the second
        weights.append(module.model[0].weight.detach().clone())
    assert (weights[0] - weights[1]).abs().max() > 1e-3


def test_no_norms():
    with pytest.raises(norma.UsageError,
                       match="no layer of the classes LayerNorm, RMSNorm, Norm in the model$"):
        nt.replace_norms(nn.Linear(2, 2), "power")
    with pytest.raises(norma.UsageError,
                       match="kinds=\\[...\\] replaces other classes: the model has BatchNorm1d"):
        nt.replace_norms(nn.Sequential(nn.BatchNorm1d(3)), "power")
