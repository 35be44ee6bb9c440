/* The registered optimizers, one line each: the constant and the name of optim.name, the nm_optimizer_type
 * (train/optimizer_type.h), and a phrase for the help. */
#pragma once

#include "norma/choice.h"

#define NM_OPTIMIZERS(C)                                                                                     \
    C(NM_OPTIM_ADAM, "adam", nm_optimizer_adam, " Adam as in PyTorch,")                                      \
    C(NM_OPTIM_ADAM_FAIRSEQ, "adam-fairseq", nm_optimizer_adam_fairseq,                                      \
      " Adam as in fairseq (decoupled weight decay),")                                                       \
    C(NM_OPTIM_ADAMW, "adamw", nm_optimizer_adamw, " AdamW as in PyTorch,")                                  \
    C(NM_OPTIM_SGD, "sgd", nm_optimizer_sgd, " SGD with momentum,")                                          \
    C(NM_OPTIM_MUON, "muon", nm_optimizer_muon,                                                              \
      " or Muon for the weight matrices of attention and feed-forward layers and AdamW for all other "       \
      "parameters")
NM_CHOICES(nm_optimizer_name, NM_OPTIMIZERS);

#define NM_OPTIMIZER_PHRASE(constant, name, type, phrase) phrase
#define NM_OPTIMIZER_HELP                                 "Optimizer:" NM_OPTIMIZERS(NM_OPTIMIZER_PHRASE) "."
