#!/usr/bin/env bash
# Generated run folders for the tests of norma report; source it in an empty folder.
#
# runs/layer-1, runs/batch-1, runs/power-1 and runs/rbn-1 with all kinds of log records; runs/cut with an incomplete last
# line; 'runs/<img src=x onerror=alert(1)>' with a name that contains markup.
# grid/*: layer with one varied setting, batch with two and two seeds, rbn with three; a setting's name contains markup.
make_log() { # NAME NORM OFFSET [SETTINGS]
    mkdir -p "runs/$1"
    printf '[run]\nfolder = runs/%s ; command line\ntask = translation ; default\n[data]\nfolder = data/corpus ; file\n[model]\nnorm = %s ; command line\n[train]\nseed = 1 ; default\n%s' "$1" "$2" "${4:-}" >"runs/$1/config.ini"
    awk -v norm="$2" -v offset="$3" 'BEGIN {
        printf "{\"type\":\"start\",\"update\":0,\"norma\":\"0.1.0\",\"compiler\":\"GCC 12\",\"device\":\"cpu\",\"parameters\":1234567,\"step_mib\":9,\"data_size\":28461,\"size_unit\":\"sentence pairs\",\"host\":\"<b>box</b>\",\"started\":\"2026-03-01T10:00:00Z\",\"command\":\"norma train x.ini\"}\n"
        for (u = 10; u <= 600; u += 10) {
            loss = 2 + offset + 6 * exp(-u / 100)
            printf "{\"type\":\"train\",\"update\":%d,\"epoch\":0,\"loss\":%.6f,\"nll\":%.6f,\"penalty\":0.0,", u, loss, loss - 1
            printf "\"lr\":0.001,\"grad_norm\":%.6f,\"tokens\":%d,\"tokens_per_second\":%d,\"seconds\":%.1f}\n", 0.5 + 5 / u, u * 100, 2000 + u % 3, u / 2
            if (u % 50 == 0 && norm != "layer") for (l = 0; l < 3; l++) {
                printf "{\"type\":\"probe\",\"update\":%d,\"instrument\":\"distance\",\"site\":\"enc.%d.ffn.norm\",\"mean\":%.6f,\"variance\":%.6f}\n", u, l, 0.01 / u, 0.1 * (l + 1)
                printf "{\"type\":\"probe\",\"update\":%d,\"instrument\":\"gain\",\"site\":\"enc.%d.ffn.norm\",", u, l
                printf "\"quantiles\":[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.5,2.5],\"above_one\":0.2,\"histogram\":{\"low\":0.1,\"high\":2.5,\"counts\":[1,2,3,4]}}\n"
            }
            if (u % 100) continue
            valid = 2.5 + offset + 3 * exp(-u / 150)
            printf "{\"type\":\"valid\",\"update\":%d,\"epoch\":0,\"loss\":%.6f,\"nll\":%.6f,\"perplexity\":%.6f,", u, valid, valid - 1, exp(valid - 1)
            if (norm ~ /batch|power|rbn/) printf "\"batch_loss\":%.6f,\"batch_nll\":%.6f,", valid - 0.1, valid - 1.1
            printf "\"bleu\":%.4f,\"signature\":\"nrefs:1\",\"best\":true,\"seconds\":%.1f}\n", 30 - 10 * offset - 20 * exp(-u / 200), u / 2
            printf "{\"type\":\"samples\",\"update\":%d,\"text\":\"  source: ein <b>Hund</b>\\n  output: a %s dog\\n  reference: a dog\\n\"}\n", u, norm
        }
    }' >"runs/$1/log.jsonl"
}
make_runs() {
    local hostile='<img src=x onerror=alert(1)>'
    make_log layer-1 layer 0
    make_log batch-1 batch 0.3
    make_log power-1 power -0.1
    make_log rbn-1 rbn 0.1
    make_log cut rms 0.2
    make_log "$hostile" group 0.5
    printf '{"type":"train","update":9' >>runs/cut/log.jsonl
    printf '%s\n' 'no JSON' '{"type":"train","update":610,"loss":null,"grad_norm":1e400}' '[1,2' \
        '{"type":"probe","update":610,"instrument":"scale","site":"</script><script>alert(1)</script>","g":3}' \
        '{"type":"probe","update":-1e308,"instrument":"scale","site":"x","g":1e29}' >>"runs/$hostile/log.jsonl"
    local run value p=
    for run in layer-1:25 batch-1:22 power-1:26 rbn-1:24; do
        value=${run#*:}
        run=${run%:*}
        printf '{"score":"bleu","value":%s.5,"low":20,"high":30,%s"signature":"nrefs:1|value:%s","tid_mean":0.02,"tid_variance":0.%s,"tid":[{"site":"enc.0.ffn.norm","mean":0.01,"variance":0.03}]}\n' \
            "$value" "$p" "$value" "$((40 - value))" >"runs/$run/test.json"
        p='"p":0.03,"p_holm":0.09,"against":"layer",'
    done
}
make_grid_runs() {
    local size rate lambda seed value=20 key="lr'<b>x</b>"
    for size in 64 512 4096; do
        make_log "layer:size=$size-1" layer 0.1 "max_tokens = $size"$'\n'
        for rate in 0.1 1; do
            for seed in 1 2; do
                value=$((value + 1))
                make_log "batch:size=$size:rate=$rate-$seed" batch 0.2 "max_tokens = $size"$'\n'"$key = $rate"$'\n'
                printf '{"score":"bleu","value":%s,"low":20,"high":40}\n' "$value" >"runs/batch:size=$size:rate=$rate-$seed/test.json"
            done
            for lambda in 0 0.01; do
                make_log "rbn:size=$size:rate=$rate:lambda=$lambda-1" rbn 0.3 "max_tokens = $size"$'\n'"$key = $rate"$'\n'"[norm.rbn]"$'\n'"lambda = $lambda"$'\n'
            done
        done
    done
    mkdir grid
    mv runs/*size=* grid
    for run in grid/layer* grid/rbn*; do
        value=$((value + 1))
        printf '{"score":"bleu","value":%s,"low":20,"high":40}\n' "$value" >"$run/test.json"
    done
}
