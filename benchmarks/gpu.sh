#!/usr/bin/env bash
# All measurements on a GPU, in parts of at most ten minutes each; later parts use the results of earlier ones.
#   bash benchmarks/gpu.sh PART FOLDER     with CIFAR-10 in ~/data/cifar10, checkpoints in data/small
# Parts: tests speed estimate mobilenet search ranking latency prune recipes. The files of a part are packed into
# FOLDER/PART.tgz; if that file is in data/small when the part is run again, it resumes from there. Runs that are not
# timed share the GPU better after `nvidia-cuda-mps-control -d`.
set -uo pipefail
cd "$(dirname "$0")/.."
part=$1 out=$HOME/measured/$1 data=$HOME/data/cifar10 weights=data/small/resnet56-4bfd9763.th
mkdir -p "$out" "$2"
if [ -f "data/small/$part.tgz" ]; then tar xzf "data/small/$part.tgz" -C "$out"; fi
trap 'tar czf "$2/$part.tgz" --exclude "*.onnx" -C "$out" .' EXIT
export PYTHONPATH=src PYTHONUNBUFFERED=1
case $part in
tests)
    python -m pytest -p no:benchmark -p no:cacheprovider -q -m gpu -n 4 -W ignore tests/accelerate tests/graph tests/data tests/latency ;;
speed)
    python benchmarks/train_speed.py --data "$data" --weights $weights --epochs 3 --out "$out/train_speed.json" \
        --way captured plain "captured, compiled" "captured, torch's norms" \
        "captured, torch's convolutions" "captured, autocast weights" "captured, not widened" ;;
estimate)
    python benchmarks/psae_speed.py resnet56 --weights $weights --data "cifar10:$data" --out "$out" ;;
mobilenet)
    python benchmarks/psae_speed.py torchvision:mobilenet_v2 --weights data/small/mobilenet_v2-b0353104.pth \
        --data noise:224 --rate 0.3 --structures 50 --reference 30 --out "$out" ;;
search)
    python benchmarks/psae_search.py resnet56 --weights $weights --data "cifar10:$data" --out "$out" ;;
ranking)
    python benchmarks/psae_ranking.py resnet56 --weights $weights --data "cifar10:$data" --epochs 4 \
        --history benchmarks/results/psae_search_resnet56.json --out "$out" ;;
latency)
    # Large batches, because the time of one image is that of its kernel launches, whatever the widths.
    at="--device cuda --runtimes torch --learn 96 --seconds 0.15 --out $out"
    python benchmarks/latency_prediction.py --networks torchvision:mobilenet_v2 --batch 256 $at
    python benchmarks/latency_prediction.py --networks vgg16 --batch 512 $at
    python benchmarks/latency_prediction.py --networks resnet20 --batch 2048 $at ;;
prune)
    for epochs in 10 100; do
        for rate in 0.5 0.7; do
            python benchmarks/prune_cifar10.py --weights $weights --data "$data" --rate $rate --epochs $epochs \
                --seeds 0 1 --at-once 4 --runs "$out/runs-$rate-$epochs" --out "$out"
        done
    done ;;
recipes)
    python benchmarks/train_recipes.py --data "$data" --weights $weights --at-once 3 --runs "$out/runs" \
        --out "$out/train_recipes.json" ;;
*)
    echo "There is no part $part. Choose one of the parts listed at the top of this file."
    exit 2 ;;
esac
