"""Structs of the public headers. scripts/records.py writes this file; do not change it."""
from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)
from typing import NamedTuple, Optional


class ErrorText(Structure):
    """nm_error"""
    _fields_ = [
        ("status", c_int),
        ("text", c_char * 1024),
    ]


class Option(Structure):
    """nm_option"""
    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("offset", c_size_t),
        ("initial", c_char_p),
        ("min", c_double),
        ("max", c_double),
        ("choices", c_char_p),
        ("help", c_char_p),
    ]


class Preset(Structure):
    """nm_preset"""
    _fields_ = [
        ("name", c_char_p),
        ("settings", c_char_p),
        ("help", c_char_p),
    ]


class BackendOptions(Structure):
    """nm_backend_options"""
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("isa", c_char_p),
        ("bf16", c_bool),
        ("threads", c_int32),
        ("fenced", c_bool),
        ("tf32", c_bool),
        ("own_gemm", c_bool),
        ("ordinal", c_int32),
        ("cache", c_char_p),
    ]


class NormPlan(Structure):
    """nm_norm_plan"""
    _fields_ = [
        ("updates", c_int64),
        ("warmup_updates", c_int64),
    ]


class NormSite(Structure):
    """nm_norm_site"""
    _fields_ = [
        ("name", c_char_p),
        ("width", c_int32),
        ("groups", c_int32),
        ("rows", c_int32),
        ("plan", NormPlan),
        ("kind", c_int),
        ("sequences", c_bool),
    ]


class NormTypeStruct(Structure):
    """nm_norm_type"""
    _fields_ = [
        ("name", c_char_p),
        ("title", c_char_p),
        ("formula", c_char_p),
        ("source", c_char_p),
        ("remedy", c_char_p),
        ("traits", c_uint),
        ("options", POINTER(Option)),
        ("presets", POINTER(Preset)),
        ("config_size", c_size_t),
        ("check", c_void_p),
        ("shape", c_void_p),
        ("token_spec", c_void_p),
        ("note", c_void_p),
        ("train", c_void_p),
        ("infer", c_void_p),
        ("backward", c_void_p),
        ("infer_backward", c_void_p),
        ("update_state", c_void_p),
        ("affine", c_void_p),
        ("follows_length", c_void_p),
    ]


class WordStruct(Structure):
    """nm_translation_word"""
    _fields_ = [
        ("begin", c_size_t),
        ("end", c_size_t),
        ("score", c_double),
        ("source", c_int32),
    ]


class SpanStruct(Structure):
    """nm_tagged_span"""
    _fields_ = [
        ("first", c_size_t),
        ("end", c_size_t),
        ("label", c_char_p),
    ]


class IntervalStruct(Structure):
    """nm_interval"""
    _fields_ = [
        ("mean", c_double),
        ("low", c_double),
        ("high", c_double),
    ]


class PerplexitySums(Structure):
    """nm_perplexity_sums"""
    _fields_ = [
        ("nll", c_double),
        ("tokens", c_int64),
        ("words", c_int64),
        ("unknown", c_int64),
        ("left_out", c_int64),
        ("characters", c_int64),
        ("known_nll", c_double),
        ("known_tokens", c_int64),
        ("spelled_nll", c_double),
        ("alphabet", c_int64),
    ]


class PairedStruct(Structure):
    """nm_paired"""
    _fields_ = [
        ("score_a", c_double),
        ("score_b", c_double),
        ("a", IntervalStruct),
        ("b", IntervalStruct),
        ("difference", IntervalStruct),
        ("p", c_double),
    ]


class PrepareProgress(Structure):
    """nm_prepare_progress"""
    _fields_ = [
        ("step", c_char_p),
        ("lines", c_int64),
    ]


prepare_progress = CFUNCTYPE(c_bool, c_void_p, POINTER(PrepareProgress))
prepare_message = CFUNCTYPE(None, c_void_p, c_char_p)


class PrepareEvents(Structure):
    """nm_prepare_events"""
    _fields_ = [
        ("user", c_void_p),
        ("progress", prepare_progress),
        ("message", prepare_message),
    ]


class PreparedSideStruct(Structure):
    """nm_prepared_side"""
    _fields_ = [
        ("name", c_char_p),
        ("word_types", c_int64),
        ("dictionary", c_int64),
        ("pieces", c_int64),
    ]


class PreparedSplitStruct(Structure):
    """nm_prepared_split"""
    _fields_ = [
        ("name", c_char_p),
        ("lines", c_int64),
        ("kept", c_int64),
        ("held_out", c_int64),
        ("words", c_int64 * 2),
        ("tokens", c_int64 * 2),
        ("unknown", c_int64 * 2),
        ("links", c_int64),
        ("repeated", c_int64),
        ("columns", c_char_p),
    ]


class PreparedDropStruct(Structure):
    """nm_prepared_drop"""
    _fields_ = [
        ("reason", c_char_p),
        ("option", c_char_p),
        ("lines", c_int64),
    ]


class TrainingProgress(Structure):
    """nm_training_progress"""
    _fields_ = [
        ("update", c_int64),
        ("updates", c_int64),
        ("epoch", c_int64),
        ("batch", c_int64),
        ("batches", c_int64),
        ("loss", c_double),
        ("nll", c_double),
        ("perplexity", c_double),
        ("penalty", c_double),
        ("learning_rate", c_double),
        ("schedule_position", c_double),
        ("grad_norm", c_double),
        ("tokens", c_int64),
        ("tokens_per_second", c_double),
        ("seconds", c_double),
        ("seconds_left", c_double),
        ("fraction", c_double),
    ]


class TrainingValidation(Structure):
    """nm_training_validation"""
    _fields_ = [
        ("update", c_int64),
        ("epoch", c_int64),
        ("loss", c_double),
        ("nll", c_double),
        ("perplexity", c_double),
        ("noncausal", c_bool),
        ("batch_loss", c_double),
        ("batch_nll", c_double),
        ("masked", c_int64),
        ("score_name", c_char_p),
        ("score_title", c_char_p),
        ("score", c_double),
        ("signature", c_char_p),
        ("samples", c_char_p),
        ("best", c_bool),
        ("seconds", c_double),
        ("training_seconds", c_double),
    ]


training_progress = CFUNCTYPE(None, c_void_p, POINTER(TrainingProgress))
training_validated = CFUNCTYPE(None, c_void_p, POINTER(TrainingValidation))
training_message = CFUNCTYPE(None, c_void_p, c_char_p)
training_validating = CFUNCTYPE(None, c_void_p, c_int64, c_double)


class TrainingEvents(Structure):
    """nm_training_events"""
    _fields_ = [
        ("user", c_void_p),
        ("progress", training_progress),
        ("validated", training_validated),
        ("message", training_message),
        ("command", c_char_p),
        ("validating", training_validating),
    ]


class ComparedRun(Structure):
    """nm_compared_run"""
    _fields_ = [
        ("variant", c_char_p),
        ("seed", c_int64),
        ("folder", c_char_p),
        ("state", c_int),
        ("exit_code", c_int32),
        ("failure", c_char_p),
        ("line", c_char_p),
        ("updates", c_int64),
        ("loss", c_double),
        ("nll", c_double),
        ("tokens_per_second", c_double),
        ("step_mib", c_double),
        ("valid_score", c_double),
        ("gap", c_double),
        ("grad_norm", c_double),
        ("train_seconds", c_double),
        ("scored", c_bool),
        ("score_name", c_char_p),
        ("score", c_double),
        ("low", c_double),
        ("high", c_double),
        ("p", c_double),
        ("tid_mean", c_double),
        ("tid_variance", c_double),
        ("signature", c_char_p),
        ("weights", c_uint64),
        ("same_weights_as", c_char_p),
    ]


class ComparedVariant(Structure):
    """nm_compared_variant"""
    _fields_ = [
        ("name", c_char_p),
        ("finished", c_int64),
        ("seeds", c_int64),
        ("grid_point", c_bool),
        ("selected", c_bool),
        ("score", c_double),
        ("score_deviation", c_double),
        ("low", c_double),
        ("high", c_double),
        ("difference", c_double),
        ("difference_low", c_double),
        ("difference_high", c_double),
        ("p", c_double),
        ("p_holm", c_double),
        ("p_equivalence", c_double),
        ("loss_deviation", c_double),
        ("perplexity", c_double),
        ("loss", c_double),
        ("nll", c_double),
        ("tokens_per_second", c_double),
        ("step_mib", c_double),
        ("valid_score", c_double),
        ("gap", c_double),
        ("grad_norm", c_double),
        ("train_seconds", c_double),
        ("tid_mean", c_double),
        ("tid_variance", c_double),
    ]


comparison_progress = CFUNCTYPE(None, c_void_p, c_void_p)
comparison_finished = CFUNCTYPE(None, c_void_p, POINTER(ComparedRun))
comparison_scored = CFUNCTYPE(None, c_void_p, POINTER(ComparedRun))
comparison_trained = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
comparison_message = CFUNCTYPE(None, c_void_p, c_char_p)


class ComparisonEvents(Structure):
    """nm_comparison_events"""
    _fields_ = [
        ("user", c_void_p),
        ("progress", comparison_progress),
        ("finished", comparison_finished),
        ("scored", comparison_scored),
        ("trained", comparison_trained),
        ("message", comparison_message),
    ]


class FactorEffect(Structure):
    """nm_factor_effect"""
    _fields_ = [
        ("term", c_char_p),
        ("contrast", c_char_p),
        ("level", c_char_p),
        ("second_level", c_char_p),
        ("effect", c_double),
        ("low", c_double),
        ("high", c_double),
        ("p", c_double),
        ("p_holm", c_double),
        ("p_equivalence", c_double),
        ("deviation", c_double),
        ("seeds", c_int64),
        ("seeds_needed", c_int64),
    ]


class PlannedRun(Structure):
    """nm_planned_run"""
    _fields_ = [
        ("type", c_char_p),
        ("phase", c_char_p),
        ("variant", c_char_p),
        ("lr", c_double),
        ("seed", c_int64),
        ("updates", c_int64),
        ("folder", c_char_p),
        ("state", c_char_p),
        ("seconds", c_double),
        ("took", c_double),
        ("train_seconds", c_double),
        ("score_seconds", c_double),
        ("value", c_double),
        ("loss", c_double),
        ("at", c_double),
        ("note", c_char_p),
    ]


class PlanPart(Structure):
    """nm_plan_part"""
    _fields_ = [
        ("type", c_char_p),
        ("phase", c_char_p),
        ("runs", c_int64),
        ("updates", c_int64),
        ("seconds", c_double),
    ]


class StudyDecision(Structure):
    """nm_study_decision"""
    _fields_ = [
        ("type", c_char_p),
        ("phase", c_char_p),
        ("variant", c_char_p),
        ("text", c_char_p),
        ("at", c_double),
    ]


class StudyAnswer(Structure):
    """nm_study_answer"""
    _fields_ = [
        ("best", c_char_p),
        ("verdict", c_char_p),
        ("paragraph", c_char_p),
        ("score", c_char_p),
        ("delta", c_double),
        ("within", c_double),
        ("seeds", c_int64),
        ("more_seeds", c_int64),
        ("updates", c_int64),
        ("budget", c_double),
        ("used", c_double),
        ("planned", c_double),
        ("model", c_char_p),
    ]


class StudiedVariant(Structure):
    """nm_studied_variant"""
    _fields_ = [
        ("variant", c_char_p),
        ("state", c_char_p),
        ("lr", c_double),
        ("lr_at_edge", c_bool),
        ("selected", c_int64),
        ("confirmed", c_int64),
        ("score", c_double),
        ("deviation", c_double),
        ("valid_value", c_double),
        ("difference", c_double),
        ("low", c_double),
        ("high", c_double),
        ("p", c_double),
        ("p_equivalence", c_double),
        ("tid_mean", c_double),
        ("tid_variance", c_double),
        ("gap", c_double),
        ("grad_norm", c_double),
        ("tokens_per_second", c_double),
        ("step_mib", c_double),
        ("hours", c_double),
    ]


study_run = CFUNCTYPE(None, c_void_p, POINTER(PlannedRun))
study_decided = CFUNCTYPE(None, c_void_p, POINTER(StudyDecision))
study_message = CFUNCTYPE(None, c_void_p, c_char_p)


class StudyEvents(Structure):
    """nm_study_events"""
    _fields_ = [
        ("user", c_void_p),
        ("run", study_run),
        ("decided", study_decided),
        ("message", study_message),
    ]


class Progress(NamedTuple):
    """After an update. Losses are means per target token, or per example for classification and tagging."""
    update: int  #: Number of finished updates
    updates: int  #: Planned number of updates; 0 if unknown
    epoch: int  #: Epoch, from 0
    batch: int  #: Number of finished batches of the epoch
    batches: int  #: Number of batches of the epoch
    loss: float  #: Loss
    nll: float  #: Loss without label smoothing and penalties
    perplexity: float  #: exp(nll); NaN for a task without perplexity
    penalty: float  #: Penalty of RBN and loss of guided alignment
    learning_rate: float  #: Learning rate
    schedule_position: float  #: Completed fraction of the schedule, if it depends on time or early stopping
    grad_norm: float  #: L2 norm of the gradient before clipping
    tokens: int  #: Target tokens so far
    tokens_per_second: float  #: Throughput since the previous record of the log, without validations
    seconds: float  #: Training time so far, including the time before resumes
    seconds_left: float  #: Estimated remaining time; NaN if unknown
    fraction: float  #: Completed fraction of the training, 0 to 1; NaN without a limit


class Validation(NamedTuple):
    """After a validation."""
    update: int  #: Number of finished updates
    epoch: int  #: Epoch, from 0
    loss: float  #: Loss with running statistics, as at inference
    nll: float  #: Loss without label smoothing and penalties
    perplexity: float  #: exp(nll); NaN for a task without perplexity
    noncausal: bool  #: The model is not causal, and exp(nll) not a perplexity
    batch_loss: float  #: Loss with batch statistics; NaN if no norm has running ones
    batch_nll: float  #: The same without label smoothing and penalties
    masked: int  #: Target tokens outside the output vocabulary, which the losses exclude
    score_name: Optional[str]  #: Name of the score, for example bleu; NULL if none was computed
    score_title: Optional[str]  #: Title of the score, for example BLEU; NULL if none was computed
    score: float  #: Score of the task in percent; NaN if none was computed
    signature: Optional[str]  #: How the score was computed
    samples: Optional[str]  #: A few inputs, outputs and references; or NULL
    best: bool  #: The best validation so far, whose model is best.safetensors
    seconds: float  #: Duration of the validation
    training_seconds: float  #: Training time so far, including the time before resumes
