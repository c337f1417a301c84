"""Plans of the real `penstock plan` agree with the contract, and the reader finds planted damage.

Needs PENSTOCK_BINARY in the environment. A plan of each case is made once, small, from the profiles and lengths of inputs.py.
"""

import copy
import itertools
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from damage import DAMAGES, Inapplicable
from damage_meshes import DAMAGES_TO_MESHES
from damage_parts import DAMAGES_TO_PARTS
from damage_shares import DAMAGES_TO_SHARES
from damage_validation import VALIDATION_DAMAGES
from drawn_parts import NoParts, with_drawn_parts
from exchange import NAMES
from inputs import PROFILES, lengths_csv
from memory import largest_in_every_order
from plan_reader import read_plan
from read_plan import PROTO_FOLDER, load_message, load_schema
from reading import Reading
from reductions import buckets_of, reduce_durations
from settle import settle
from token_sums import loss_weight
from world_costs import WorldCosts

SAMPLES = 20
STRATEGIES = "pp 2 x dp 2; pp 1 x dp 4; pp 1 x dp 2 x cp 2"
# name: (profile, flags of `penstock plan`)
CASES = {
    "1f1b, padded": ("gpt", "--pp=2 --dp=2 --schedule=1f1b --policy=padding --micro-batch-size=2 --recompute=none"),
    "ready-first, packed": ("gpt", "--pp=4 --dp=1 --schedule=ready-first --policy=packed --token-cap=300"),
    "split backward": ("gpt-loss-only", "--pp=3 --dp=2 --schedule=split-backward --policy=token_budget --token-cap=200"),
    "split backward, selective": ("gpt", "--pp=2 --dp=1 --schedule=split-backward --recompute=selective --token-cap=200 --policy=packed"),
    "split backward, full": ("gpt", "--pp=2 --dp=2 --schedule=split-backward --recompute=full --layout=packed"),
    "loop": ("gpt", "--pp=2 --dp=2 --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "V": ("gpt-both", "--pp=2 --dp=3 --schedule=ready-first --layers-per-stage=1,3,3,1 --rank-of-stage=0,1,1,0 --layout=padded"),
    "V, split backward": ("t5", "--pp=2 --dp=1 --schedule=split-backward --layers-per-stage=2,2,4,1 --rank-of-stage=0,1,1,0"),
    "concatenated": ("gpt", "--pp=2 --dp=2 --policy=concatenated --token-cap=320 --micro-batch-size=2 --recompute=full"),
    "tables alone": ("gpt-tables", "--pp=2 --dp=2 --layout=padded"),
    "tables and closed form": ("gpt-both", "--pp=2 --dp=1 --policy=padding --micro-batch-size=3 --recompute=selective"),
    "more replicas than samples": ("gpt", "--pp=2 --dp=3 --rows=0:2"),
    "T5, padded": ("t5", "--pp=3 --dp=1 --policy=padding --micro-batch-size=2 --schedule=1f1b"),
    "T5, packed": ("t5", "--pp=4 --dp=2 --layout=packed --schedule=split-backward --shard-optimizer-state"),
    "T5, concatenated": ("t5-both", "--pp=2 --dp=2 --policy=concatenated --token-cap=500 --schedule=ready-first"),
    "T5, tables alone": ("t5-tables", "--pp=2 --dp=1 --layout=padded --recompute=full"),
    "T5, tables and closed form": ("t5-both", "--pp=2 --dp=2 --policy=padding --micro-batch-size=5"),
    "T5, loop": ("t5-deep-decoder", "--pp=2 --dp=2 --schedule=interleaved --layers-per-stage=1,2,2,1,2,1 --rank-of-stage=0,1,0,1,0,1"),
    "T5, tight memory": ("t5", "--pp=2 --dp=1 --policy=packed --token-cap=400 --schedule=ready-first", 0.45),
    "context ranks": ("gpt-groups", "--pp=2 --dp=2 --cp=2 --layout=packed"),
    "context ranks, padded": ("gpt-groups", "--pp=1 --dp=2 --cp=4 --policy=padding --micro-batch-size=3 --recompute=full"),
    "context ranks, concatenated": ("gpt", "--pp=2 --dp=1 --cp=4 --policy=concatenated --token-cap=320"),
    "long samples, packed": ("gpt-groups", "--pp=2 --dp=1 --cp=8 --layout=packed --rows=0:4"),
    "long samples, padded": ("gpt", "--pp=1 --dp=2 --cp=4 --tp=2 --policy=padding --micro-batch-size=2 --rows=0:4"),
    "long samples, concatenated": ("gpt-measured", "--pp=2 --dp=1 --cp=4 --policy=concatenated --token-cap=2000 --rows=0:4"),
    "long samples, split": ("gpt-fast", "--pp=2 --dp=1 --cp=8 --tp=2 --layout=packed --schedule=split-backward --rows=0:4"),
    "context ranks, slow": ("gpt-measured", "--pp=2 --dp=1 --cp=8 --policy=packed --token-cap=900 --schedule=split-backward"),
    "efficiency by tokens": ("gpt-efficiency", "--pp=2 --dp=2 --schedule=split-backward --layout=packed"),
    "efficiency by tokens, one point": ("gpt-efficiency-one-point", "--pp=2 --dp=2 --layout=packed"),
    "efficiency by tokens, tables": ("gpt-efficiency", "--pp=2 --dp=1 --tp=2 --policy=padding --micro-batch-size=3 --recompute=full"),
    "efficiency by tokens, T5": ("t5-efficiency", "--pp=3 --dp=2 --layout=packed"),
    "efficiency by tokens, T5, padded": ("t5-efficiency", "--pp=2 --dp=1 --tp=2 --policy=padding --micro-batch-size=2 --recompute=full"),
    "efficiency by tokens, stage groups": ("gpt-efficiency-measured", "--pp=2 --dp=1 --cp=4 --tp=2 --layout=packed --schedule=split-backward"),
    "efficiency by tokens, parts": ("gpt-efficiency-parts", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --policy=packed --token-cap=1500 --recompute=selective"),
    "efficiency by tokens, adapters": ("gpt-efficiency-adapters", "--pp=2 --dp=2 --schedule=split-backward --policy=packed --token-cap=200"),
    "slow ranks": ("gpt-slow", "--pp=2 --dp=3 --schedule=split-backward --layout=packed"),
    "slow ranks, loop": ("gpt-slow", "--pp=2 --dp=2 --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "slow ranks, padded": ("gpt-slow", "--pp=4 --dp=1 --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "slow links": ("gpt-slow-links", "--pp=2 --dp=3 --schedule=split-backward --layout=packed"),
    "slow links, deep": ("gpt-slow-links", "--pp=4 --dp=2 --policy=packed --token-cap=300"),
    "slow links, loop": ("gpt-slow-links", "--pp=2 --dp=3 --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "slow links, stage groups": ("gpt-slow-links", "--pp=2 --dp=2 --cp=2 --layout=packed"),
    "slow links, side by side": ("gpt-slow-links", "--strategies='pp 2 + pp 4' --layout=packed"),
    "slow context ranks": ("gpt-groups-slow", "--pp=1 --dp=2 --cp=4 --layout=packed"),
    "slow stage groups": ("gpt-groups-slow", "--pp=2 --dp=2 --cp=2 --tp=2 --layout=packed --schedule=split-backward"),
    "experts over context ranks": ("gpt-experts", "--pp=2 --dp=2 --cp=2 --ep=2 --layout=packed --recompute=selective"),
    "experts over tensor ranks": ("gpt-experts", "--pp=2 --dp=2 --tp=2 --ep=2 --shard-optimizer-state --recompute=full"),
    "an uneven router": ("gpt-experts-uneven", "--pp=2 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1500 --schedule=split-backward --recompute=selective"),
    "an uneven router, tensor ranks": ("gpt-experts-uneven", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --layout=packed --recompute=full"),
    "an uneven router, of some meshes": ("gpt-experts-uneven", "--strategies='pp 2 x cp 4 x ep 2; cp 8 x ep 8; pp 2 x dp 4' --layout=packed"),
    "products beside exchanges": ("gpt-experts-beside", "--pp=2 --dp=2 --cp=4 --ep=2 --layout=packed --recompute=full"),
    "products beside exchanges, split": ("gpt-experts-far", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --schedule=split-backward"),
    "a shared expert": ("gpt-shared-expert", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --schedule=split-backward"),
    "a shared expert, recomputed": ("gpt-shared-expert", "--pp=2 --dp=2 --cp=2 --tp=2 --ep=4 --recompute=full"),
    "experts over both": ("gpt-experts", "--pp=2 --dp=2 --cp=4 --tp=2 --ep=4 --shard-optimizer-state --schedule=split-backward"),
    "dense layers": ("gpt-dense", "--pp=2 --dp=2 --layout=packed --recompute=selective"),
    "dense layers, one a stage": ("gpt-dense", "--pp=4 --dp=1 --tp=2 --schedule=split-backward --layers-per-stage=1,3,3,1 --recompute=full"),
    "dense layers, expert ranks": ("gpt-dense", "--pp=3 --dp=1 --cp=2 --tp=2 --ep=4 --layers-per-stage=1,6,1 --shard-optimizer-state --schedule=split-backward"),
    "dense layers, loop": ("gpt-dense", "--pp=2 --dp=1 --cp=2 --ep=2 --schedule=interleaved --layers-per-stage=1,1,5,1 --rank-of-stage=0,1,0,1 --recompute=full"),
    "dense layers, tight memory": ("gpt-dense", "--pp=2 --dp=1 --cp=2 --ep=2 --policy=packed --token-cap=900", 0.6),
    "dense layers, measured": ("gpt-dense-measured", "--pp=2 --dp=2 --cp=4 --tp=2 --ep=2 --layout=packed"),
    "dense layers, products beside exchanges": ("gpt-dense-measured", "--pp=1 --dp=2 --cp=4 --ep=2 --policy=packed --token-cap=900 --schedule=split-backward"),
    "dense layers, a shared expert": ("gpt-dense-shared", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --schedule=split-backward --recompute=none"),
    "dense layers, shares": ("gpt-dense", "--pp=2 --dp=2 --cp=2 --tp=2 --ep=4 --parameter-shares --schedule=split-backward"),
    "dense layers, strategies": ("gpt-dense", "--strategies='pp 2 x cp 2 x ep 2; dp 2 x tp 2 x ep 2; pp 4' --layout=packed"),
    "dense layers, parts": ("gpt-dense-parts", "--pp=2 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1000 --schedule=split-backward --recompute=none"),
    "dense layers, parts, full": ("gpt-dense-parts", "--pp=1 --dp=2 --cp=2 --ep=2 --policy=padding --micro-batch-size=6 --recompute=full"),
    "dense layers, parts, selective": ("gpt-dense-parts", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --policy=packed --token-cap=1500 --recompute=selective"),
    "adapters": ("gpt-adapters", "--pp=2 --dp=2 --schedule=split-backward --policy=packed --token-cap=200"),
    "adapters, stage groups": ("gpt-adapters", "--pp=2 --dp=2 --cp=2 --tp=4 --shard-optimizer-state --layout=packed --recompute=full"),
    "adapters of a T5": ("t5-adapters", "--pp=3 --dp=2 --tp=2 --shard-optimizer-state"),
    "tensor ranks": ("gpt-groups", "--pp=2 --dp=2 --tp=2 --schedule=split-backward --recompute=selective"),
    "tensor ranks, tables": ("gpt-both", "--pp=2 --dp=1 --tp=4 --policy=padding --micro-batch-size=3"),
    "tensor ranks, tables alone": ("gpt-tables", "--pp=2 --dp=2 --tp=2 --layout=padded"),
    "tensor ranks, T5": ("t5-both", "--pp=3 --dp=2 --tp=2 --shard-optimizer-state --recompute=full"),
    "tensor ranks, T5, packed": ("t5", "--pp=2 --dp=1 --tp=4 --layout=packed --layers-per-stage=2,2,4,1 --rank-of-stage=0,1,1,0"),
    "stage groups": ("gpt-groups", "--pp=2 --dp=2 --cp=2 --tp=4 --shard-optimizer-state --layout=packed --recompute=full"),
    "stage groups, loop": ("gpt-groups", "--pp=2 --dp=1 --cp=4 --tp=2 --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "stage groups, measured": ("gpt-measured", "--pp=2 --dp=2 --cp=2 --tp=2 --layout=padded --schedule=split-backward"),
    "stage groups, V, tight memory": ("gpt-groups", "--pp=2 --dp=1 --cp=2 --tp=2 --layers-per-stage=2,2,2,2 --rank-of-stage=0,1,1,0 --layout=packed", 0.6),
    "shares": ("gpt", "--pp=2 --dp=2 --parameter-shares --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "shares, one rank": ("gpt-loss-only", "--parameter-shares --layout=packed"),
    "shares, replicas alone": ("gpt-tables", "--pp=1 --dp=5 --parameter-shares --layout=padded"),
    "shares, more replicas than samples": ("gpt", "--pp=2 --dp=3 --parameter-shares --rows=0:2"),
    "shares, split backward": ("gpt-slow", "--pp=4 --dp=2 --parameter-shares --schedule=split-backward --policy=packed --token-cap=200"),
    "shares, loop": ("gpt-both", "--pp=2 --dp=2 --parameter-shares --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "shares, stage groups": ("gpt-groups", "--pp=2 --dp=2 --cp=2 --tp=4 --parameter-shares --layout=packed --recompute=full"),
    "shares, one head of keys and values": ("gpt-measured", "--pp=1 --dp=2 --cp=2 --tp=2 --parameter-shares --schedule=split-backward"),
    "shares, experts": ("gpt-experts", "--pp=2 --dp=2 --cp=4 --tp=2 --ep=4 --parameter-shares --schedule=split-backward"),
    "shares, experts over context ranks": ("gpt-experts-beside", "--pp=2 --dp=1 --cp=4 --ep=2 --parameter-shares"),
    "shares, T5": ("t5-both", "--pp=3 --dp=2 --tp=2 --parameter-shares --policy=padding --micro-batch-size=3 --recompute=full"),
    "shares, T5, V": ("t5", "--pp=2 --dp=2 --parameter-shares --schedule=split-backward --layers-per-stage=2,2,4,1 --rank-of-stage=0,1,1,0"),
    "shares, beside passes": ("gpt-large", "--pp=1 --dp=4 --parameter-shares --layout=packed"),
    "shares, beside passes, pipeline": ("gpt-large", "--pp=2 --dp=2 --parameter-shares --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "shares, beside passes, loop": ("gpt-large", "--pp=2 --dp=2 --parameter-shares --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "shares, beside passes, V": ("gpt-large-slow", "--pp=2 --dp=2 --parameter-shares --layers-per-stage=2,2,2,2 --rank-of-stage=0,1,1,0 --layout=packed"),
    "shares, beside short passes": ("gpt-large-slow", "--pp=2 --dp=2 --parameter-shares --schedule=split-backward --policy=packed --token-cap=200"),
    "shares, beside passes of stage groups": ("gpt-large-slow", "--pp=2 --dp=1 --cp=2 --tp=2 --parameter-shares --layout=packed"),
    "shares, beside passes, more replicas than samples": ("gpt-large", "--pp=1 --dp=4 --parameter-shares --rows=0:2"),
    "shares, beside passes of a T5": ("t5-large", "--pp=2 --dp=2 --parameter-shares --schedule=split-backward --layers-per-stage=2,2,4,1 --rank-of-stage=0,1,1,0"),
    "shares, tight memory": ("gpt", "--pp=2 --dp=2 --parameter-shares --schedule=ready-first --layout=packed", 0.4),
    "limits by rank": ("gpt", "--pp=2 --dp=2 --layout=packed", 0.6),
    "limits by rank, side by side": ("gpt", "--strategies='pp 2 + dp 2' --layout=packed", 0.6),
    "weighted shares": ("gpt", "--pp=2 --dp=2 --parameter-shares --share-weights=3,1,0,2 --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "weighted shares, all alike": ("gpt-slow", "--pp=2 --dp=3 --parameter-shares --share-weights=4,4,4,4,4,4 --layout=packed"),
    "weighted shares, one rank has all": ("gpt", "--pp=2 --dp=2 --parameter-shares --share-weights=0,0,7,0 --layout=packed"),
    "weighted shares, slow ranks": ("gpt-slow", "--pp=4 --dp=1 --parameter-shares --share-weights=3,2,4,1 --schedule=split-backward --policy=packed --token-cap=200"),
    "weighted shares, stage groups": ("gpt-groups-slow", "--pp=2 --dp=1 --cp=2 --tp=2 --parameter-shares --share-weights=9,8,7,6,5,4,3,2 --layout=packed"),
    "weighted shares, experts": ("gpt-experts", "--pp=2 --dp=1 --cp=2 --tp=2 --ep=4 --parameter-shares --share-weights=1,0,2,0,3,0,4,0 --schedule=split-backward"),
    "weighted shares, T5": ("t5-both", "--pp=3 --dp=1 --parameter-shares --share-weights=1048576,1,524289 --policy=padding --micro-batch-size=3"),
    "weighted shares, beside passes": ("gpt-large", "--pp=2 --dp=2 --parameter-shares --share-weights=1,3,1,3 --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "weighted shares, tight memory": ("gpt", "--pp=2 --dp=2 --parameter-shares --share-weights=2,5,3,1 --schedule=ready-first --layout=packed", 0.4),
    "weighted shares, side by side": ("gpt-groups-slow", "--strategies='tp 2 + pp 2 x cp 2 + dp 2' --share-weights=1,2,0,4,5,6,0,8 --layout=packed --recompute=full"),
    "weighted shares, side by side, beside passes": ("gpt-large", "--strategies='pp 2 x dp 2 + dp 2 + pp 2' --share-weights=5,5,5,5,0,0,3,3 --layout=packed"),
    "strategies": ("gpt-groups", f"--strategies='{STRATEGIES}' --layout=packed"),
    "weighted shares, strategies": ("gpt-groups", f"--strategies='{STRATEGIES}' --share-weights=4,3,2,1 --layout=packed"),
    "long samples, strategies": ("gpt-groups", f"--strategies='{STRATEGIES}' --layout=packed --rows=0:4"),
    "strategies, experts": ("gpt-experts", "--strategies='pp 2 x cp 2 x ep 2; dp 2 x tp 2 x ep 2; pp 1 x dp 4' --layout=packed"),
    "strategies, T5": ("t5", "--strategies='pp 1 x dp 4; pp 2 x dp 1 x tp 2; pp 4' --layout=packed"),
    "side by side": ("gpt-groups", "--strategies='dp 7; pp 2 x tp 2 + pp 3' --layout=packed"),
    "side by side, pipelines": ("gpt", "--strategies='pp 2 + pp 2 x dp 2' --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "side by side, three": ("gpt-both", "--strategies='pp 4 + dp 2 + pp 2' --schedule=split-backward --policy=packed --token-cap=200"),
    "side by side, more replicas than samples": ("gpt", "--strategies='pp 2 x dp 2 + dp 3' --rows=0:2"),
    "side by side, a mesh without samples": ("gpt", "--strategies='pp 2 + dp 2' --rows=0:1"),
    "side by side, slow ranks": ("gpt-groups-slow", "--strategies='tp 2 + pp 2 x cp 2 + dp 2' --layout=packed --recompute=full"),
    "side by side, experts": ("gpt-experts-beside", "--strategies='pp 2 x cp 2 x ep 2 + dp 2 + cp 4 x ep 4' --layout=packed"),
    "side by side, T5": ("t5-both", "--strategies='pp 2 x tp 2 + pp 3 + pp 1' --policy=padding --micro-batch-size=3"),
    "long samples, side by side": ("gpt-measured", "--strategies='cp 4 x tp 2 + pp 2 x dp 2' --layout=packed --rows=0:4"),
    "side by side, beside passes": ("gpt-large", "--strategies='pp 2 x dp 2 + dp 2 + pp 2' --layout=packed"),
    "side by side, beside passes of a T5": ("t5-large", "--strategies='pp 2 x tp 2 + pp 1' --policy=padding --micro-batch-size=3"),
    "side by side, tight memory": ("gpt-groups", "--strategies='pp 2 x tp 2 + dp 2 + cp 2' --layout=packed", 0.7),
    "tight memory": ("gpt", "--pp=2 --dp=1 --policy=padding --micro-batch-size=1 --schedule=ready-first --recompute=none", 0.3),
    "tight memory, split": ("gpt", "--pp=3 --dp=1 --policy=packed --token-cap=100 --schedule=split-backward --recompute=none", 0.4),
    "tight memory, V": ("gpt", "--pp=2 --dp=1 --schedule=ready-first --layers-per-stage=2,2,2,2 --rank-of-stage=0,1,1,0 --layout=packed", 0.4),
    "validation": ("gpt", "--pp=2 --dp=2 --layout=packed --recompute=full --validation-rows=5:16"),
    "validation, three stages": ("gpt", "--pp=3 --dp=1 --policy=packed --token-cap=100 --schedule=split-backward --validation-rows=0:20"),
    "validation, loop": ("gpt", "--pp=2 --dp=2 --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1 --validation-rows=0:20"),
    "validation, T5, V": ("t5", "--pp=2 --dp=1 --policy=padding --micro-batch-size=2 --layers-per-stage=2,2,4,1 --rank-of-stage=0,1,1,0 --validation-rows=0:15"),
    "validation, stage groups": ("gpt-groups", "--pp=2 --dp=2 --cp=2 --tp=4 --shard-optimizer-state --layout=packed --validation-rows=0:20"),
    "validation, experts": ("gpt-experts-parts", "--pp=2 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1500 --validation-rows=3:20"),
    "validation, shares": ("gpt-slow", "--pp=2 --dp=3 --parameter-shares --validation-rows=0:2"),
    "validation, weighted shares": ("gpt-slow", "--pp=2 --dp=3 --parameter-shares --share-weights=1,2,1,2,1,2 --validation-rows=0:2"),
    "validation, strategies": ("gpt-groups", f"--strategies='{STRATEGIES}' --layout=packed --validation-rows=0:9"),
    "experts, concatenated": ("gpt-experts-parts", "--pp=2 --dp=1 --cp=4 --ep=2 --policy=concatenated --token-cap=200 --recompute=selective"),
    "parts, split backward": ("gpt-experts-parts", "--pp=2 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1000 --schedule=split-backward --recompute=none"),
    "parts, joined": ("gpt-experts-joined", "--pp=1 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1500 --recompute=none"),
    "parts, joined, selective": ("gpt-experts-joined", "--pp=1 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1500 --recompute=selective"),
    "parts, joined, full": ("gpt-experts-joined", "--pp=1 --dp=2 --cp=2 --ep=2 --policy=padding --micro-batch-size=6 --recompute=full"),
    "parts, padded, full": ("gpt-experts-parts", "--pp=1 --dp=2 --cp=2 --ep=2 --policy=padding --micro-batch-size=6 --recompute=full"),
    "parts, selective": ("gpt-experts-parts", "--pp=2 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1500 --most-parts=3 --recompute=selective"),
    "parts, loop": ("gpt-experts-parts", "--pp=2 --dp=1 --cp=2 --ep=2 --parameter-shares --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1 --token-cap=700 --policy=packed"),
    "parts, slow ranks": ("gpt-experts-parts-slow", "--pp=2 --dp=1 --cp=4 --ep=4 --policy=packed --token-cap=1500 --schedule=split-backward --recompute=full"),
    "experts, of eight ranks": ("gpt-experts-parts-slow", "--pp=2 --dp=1 --cp=8 --ep=8 --policy=packed --token-cap=900 --schedule=split-backward --recompute=full"),
    "parts, tensor ranks": ("gpt-experts-parts", "--pp=1 --dp=1 --tp=2 --cp=2 --ep=4 --policy=packed --token-cap=1500 --recompute=full"),
    "parts, tensor ranks alone": ("gpt-experts-parts", "--pp=2 --dp=1 --tp=2 --ep=2 --policy=packed --token-cap=1000 --schedule=split-backward"),
    "parts, side by side": ("gpt-experts-parts", "--strategies='cp 4 x ep 4 + cp 2 x ep 2' --layout=packed"),
    "parts, tight memory": ("gpt-experts-parts", "--pp=2 --dp=1 --cp=2 --ep=2 --policy=packed --token-cap=900", 0.6),
    "long samples, parts": ("gpt-experts-parts", "--pp=1 --dp=1 --cp=2 --ep=2 --policy=packed --token-cap=3000 --rows=0:4"),
    "buckets": ("gpt-large", "--pp=2 --dp=2 --gradient-bucket-mib=1 --schedule=1f1b --policy=padding --micro-batch-size=2"),
    "buckets, one for each stage": ("gpt-large", "--pp=2 --dp=2 --gradient-bucket-mib=1048576 --layout=packed"),
    "buckets, slow": ("gpt-large-slow", "--pp=1 --dp=4 --gradient-bucket-mib=16 --policy=packed --token-cap=200"),
    "buckets, divided state": ("gpt-large-slow", "--pp=2 --dp=3 --gradient-bucket-mib=0.001 --shard-optimizer-state --schedule=split-backward --layout=packed"),
    "buckets, loop": ("gpt-large", "--pp=2 --dp=2 --gradient-bucket-mib=4 --schedule=interleaved --layers-per-stage=1,3,2,2 --rank-of-stage=0,1,0,1"),
    "buckets, V": ("gpt-large-slow", "--pp=2 --dp=2 --gradient-bucket-mib=4 --layers-per-stage=2,2,2,2 --rank-of-stage=0,1,1,0 --policy=packed --token-cap=200"),
    "buckets, stage groups": ("gpt-large-slow", "--pp=2 --dp=2 --cp=2 --tp=2 --gradient-bucket-mib=8 --layout=packed"),
    "buckets, more replicas than samples": ("gpt-large", "--pp=2 --dp=3 --gradient-bucket-mib=4 --rows=0:2"),
    "buckets, experts": ("gpt-experts-beside", "--pp=2 --dp=2 --cp=4 --ep=2 --gradient-bucket-mib=4 --layout=packed"),
    "buckets, adapters": ("gpt-adapters", "--pp=2 --dp=2 --gradient-bucket-mib=0.001 --policy=packed --token-cap=200"),
    "buckets, T5": ("t5-large", "--pp=2 --dp=2 --gradient-bucket-mib=12 --schedule=split-backward --policy=padding --micro-batch-size=3"),
}


class Made:
    """The plans of all cases, made once."""

    def __init__(self):
        self.schema = load_schema()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.lengths = self.folder / "lengths.csv"
        self.lengths.write_text(lengths_csv(SAMPLES, seed=5), encoding="utf-8")
        self.long_lengths = self.folder / "long.csv"
        self.long_lengths.write_text("input_tokens,target_tokens\n900,300\n3,40\n200,100\n1500,20\n", encoding="utf-8")
        self.cases = {name: self._make(name, *case) for name, case in CASES.items()}

    def _make(self, name, profile_name, flags, memory_share=None):
        """A case; `memory_share`: planned again within this share of the memory that the plan took beyond the static."""
        flags = shlex.split(flags)
        if not any(flag.startswith("--rows") for flag in flags):
            flags.append(f"--rows=0:{SAMPLES}")
        profile = self.folder / f"{profile_name}.json"
        profile.write_text(json.dumps(PROFILES[profile_name]), encoding="utf-8")
        case = SimpleNamespace(
            samples=(self.long_lengths, 2000) if name.startswith("long samples") else (self.lengths, 250),
            plan_path=self.folder / f"plan-{len(list(self.folder.iterdir()))}.json",
            profile_path=profile,
            profile_file=load_message(self.schema, "ProfileFile", profile),
        )
        case.planned_batch = self._plan(case, flags)
        if memory_share is not None:
            static = max(program.static_memory_bytes for program in case.planned_batch.plan.programs)
            peak = max(rank.peak_memory_bytes for rank in case.planned_batch.plan.predicted.ranks)
            limit = static + (peak - static) * memory_share
            tight = f"--rank-memory-mb=1:{limit / 1e6:.3f},3:{limit / 1e6:.3f}" if name.startswith("limits by rank") else f"--memory-mb={limit / 1e6:.3f}"
            case.planned_batch = self._plan(case, flags + [tight])
        return case

    def _plan(self, case, flags):
        command = [os.environ["PENSTOCK_BINARY"], "plan", f"--profile={case.profile_path}", f"--lengths={case.samples[0]}"]
        command += [f"--max-length={case.samples[1]}", "--effort=fast", "--threads=1", f"--out={case.plan_path}", *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
        return load_message(self.schema, "PlannedBatch", case.plan_path)

    def read(self, case, planned_batch=None):
        planned_batch = planned_batch or case.planned_batch
        return read_plan(self.schema, planned_batch, case.profile_file, check_habits=True)

    def verify(self, case, planned_batch):
        """(exit status, what it said) of `penstock verify`."""
        path = self.folder / "verified.json"
        path.write_text(json.dumps(self.schema.json_object(planned_batch)), encoding="utf-8")
        command = [os.environ["PENSTOCK_BINARY"], "verify", str(path), f"--profile={case.profile_path}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout


def setUpModule():
    global MADE
    MADE = Made()


class PlansOfPenstock(unittest.TestCase):
    def test_agree_with_the_contract(self):
        for name, case in MADE.cases.items():
            with self.subTest(name):
                self.assertEqual(MADE.read(case).lines(), [])

    def test_cover_what_the_contract_knows(self):
        """Without this the test above could be about nothing."""
        schema, seen = MADE.schema, set()
        for case in MADE.cases.values():
            plan = case.planned_batch.plan
            seen.add(schema.enum_name("Schedule", plan.schedule))
            for replica in plan.replicas:
                for micro_batch in replica.micro_batches:
                    model = schema.enum_name("Architecture", plan.model.architecture)
                    seen.add((model, schema.enum_name("Layout", micro_batch.layout)))
                    seen.update("full" for entry in micro_batch.recompute if entry.full_layers)
                    seen.update("selective" for entry in micro_batch.recompute if entry.selective_layers)
                    seen.update(f"span of {ranks}" for ranks in micro_batch.span_ranks)
            for rank in plan.predicted.ranks:
                seen.update(name for name, value in vars(rank.bubble).items() if value)
            for program in plan.programs:
                seen.add("several stages" if len(program.stages) > 1 else "one stage")
                seen.update(schema.enum_name("Op", item.op) for item in program.instructions)
                exchanges = [item.exchange for item in program.instructions if item.exchange is not None]
                seen.update(name for exchange in exchanges for name in NAMES if getattr(exchange, name))
                seen.update("transfer of nothing" for item in program.instructions if item.transfer and item.transfer.bytes == 0)
        expected = {"ONE_FORWARD_ONE_BACKWARD", "READY_FIRST", "SPLIT_BACKWARD", "INTERLEAVED", "full", "selective", "several stages"}
        expected |= set(itertools.product(("GPT", "T5"), ("PADDED", "PACKED", "CONCATENATED")))
        expected |= {"RESHARD", *NAMES, "span of 1", "span of 2", "span of 4", "span of 8", "group_ns"}
        expected |= {"fill_ns", "drain_ns", "dependency_ns", "transfer_ns", "imbalance_ns", "memory_ns", "BACKWARD", "BACKWARD_WEIGHT"}
        self.assertEqual(expected - seen, set())


class Strategies(unittest.TestCase):
    def test_are_named_by_the_plans_that_run_on_them(self):
        """One job, two batches: the first runs on the job's first mesh, long samples on the one with context ranks."""
        for name, strategy in (("strategies", 0), ("long samples, strategies", 2)):
            with self.subTest(name):
                plan = MADE.cases[name].planned_batch.plan
                self.assertEqual(plan.strategy, strategy)
                mesh = {"pp": plan.mesh.pipeline, "dp": plan.mesh.data, "cp": plan.mesh.context}
                degrees = [factor.split() for factor in STRATEGIES.split("; ")[strategy].split(" x ")]
                self.assertEqual({key: value for key, value in mesh.items() if value}, {key: int(value) for key, value in degrees})

    def test_of_a_job_have_shares_and_groups_of_all_ranks(self):
        for name in ("strategies", "long samples, strategies", "strategies, T5"):
            with self.subTest(name):
                plan = MADE.cases[name].planned_batch.plan
                self.assertTrue(plan.options.parameter_shares)
                self.assertEqual(plan.groups[0].ranks, [0, 1, 2, 3])


class WeightedShares(unittest.TestCase):
    def test_are_in_the_plans(self):
        """Without this the tests of such plans could be about shares that are alike."""
        for name, case in MADE.cases.items():
            with self.subTest(name):
                plan = case.planned_batch.plan
                self.assertEqual(bool(plan.options.share_weights), "weighted shares" in name)
                steps = {program.instructions[-1].expected_duration_ns for program in plan.programs}
                if "weighted shares" in name:
                    self.assertEqual(len(steps) > 1, "all alike" not in name)


class ReshardsBesidePasses(unittest.TestCase):
    def test_are_in_the_plans(self):
        """Without this the tests of such plans could be about RESHARDs that nothing hides."""
        for part in (0, 1):
            shares = {}
            for name, case in MADE.cases.items():
                if "beside passes" not in name and "beside short passes" not in name:
                    continue
                reading = Reading(MADE.schema, case.planned_batch)
                whole = WorldCosts(reading, case.profile_file.profile).reshard_duration
                left = next(item for _, item in reading.instructions() if (reading.op(item), item.part) == ("RESHARD", part))
                shares[name] = left.expected_duration_ns / whole
            with self.subTest(part):
                self.assertTrue(all(share < 1 for share in shares.values()), shares)
                # Nearly all, but for the last round, and little.
                self.assertLess(min(shares.values()), 0.3)
                self.assertGreater(max(shares.values()), 0.7)


class ReductionsInBuckets(unittest.TestCase):
    def test_are_hidden_in_part_and_in_whole(self):
        """Without this the tests of such plans could be about one bucket, or about nothing hidden."""
        facts = set()
        for name, case in MADE.cases.items():
            reading = Reading(MADE.schema, case.planned_batch)
            world_costs = WorldCosts(reading, case.profile_file.profile)
            for (stage, tensor), left in reduce_durations(reading, world_costs).items():
                buckets = buckets_of(reading, world_costs.of_rank(0), world_costs.of_rank(0).pipeline.stages[stage], tensor)
                whole, least = buckets.left([]), buckets.left([10**15])
                self.assertTrue(least <= left <= whole, name)
                facts.add("one bucket" if buckets.count == 1 else "several buckets")
                if least < whole:
                    facts.add("nothing hidden" if left == whole else "as much as can be" if left == least else "what a pass leaves")
        self.assertEqual(facts, {"one bucket", "several buckets", "nothing hidden", "as much as can be", "what a pass leaves"})


class Validations(unittest.TestCase):
    def test_are_in_their_plans(self):
        """Without this the tests of such plans could be about training alone."""
        for name, case in MADE.cases.items():
            with self.subTest(name):
                validation = case.planned_batch.plan.validation
                self.assertEqual(validation is not None, name.startswith("validation"))
                if validation is not None:
                    ops = {MADE.schema.enum_name("Op", item.op) for program in validation.programs for item in program.instructions}
                    self.assertEqual(ops & {"BACKWARD", "BACKWARD_INPUT", "OPTIMIZER_STEP", "REDUCE_GRADIENTS"}, set())
                    self.assertIn("FORWARD", ops)


class MeshesSideBySide(unittest.TestCase):
    def test_are_in_their_plans(self):
        """Without this the tests of such plans could be about one mesh."""
        for name, case in MADE.cases.items():
            with self.subTest(name):
                self.assertEqual(len(case.planned_batch.plan.meshes) > 1, "side by side" in name)

    def test_have_their_replicas_and_ranks_one_mesh_after_the_other(self):
        plan = MADE.cases["side by side"].planned_batch.plan
        self.assertEqual(plan.strategy, 1)
        # However many stages a rank has.
        groups = [sorted({tuple(stage.ranks) for stage in replica.stages}) for replica in plan.topology.replicas]
        self.assertEqual(groups, [[(0, 1), (2, 3)], [(4,), (5,), (6,)]])
        self.assertEqual([group.ranks for group in plan.groups], [[0, 1, 2, 3, 4, 5, 6], [0, 1], [2, 3]])


def facts_of_parts(case):
    """What a plan has of micro-batches that go through passes in parts."""
    schema, plan, profile = MADE.schema, case.planned_batch.plan, case.profile_file.profile
    cut = {
        (replica, index): item
        for replica, messages in enumerate(plan.replicas)
        for index, item in enumerate(messages.micro_batches)
        if item.part_rows
    }
    facts = set()
    if cut:
        node = profile.cluster.gpus_per_node
        facts.add("overlap below 1" if profile.cluster.exchange_overlap < 1 else "overlap")
        facts.add("slow ranks" if profile.slow_ranks else "no slow ranks")
        facts.add("windows" if plan.model.attention_window else "no windows")
        facts.add("several meshes" if plan.meshes else "one mesh")
        facts.update("several nodes" for group in plan.groups if len({rank // node for rank in group.ranks}) > 1)
    for item in cut.values():
        facts.update((f"{len(item.part_rows) - 1} parts", schema.enum_name("Layout", item.layout)))
        facts.add("a whole backward pass" if item.whole_backward else "a backward pass in parts")
        facts.update("a row that is cut" for chunk in item.part_chunks if chunk)
        facts.update(level for entry in item.recompute for level in ("full", "selective") if getattr(entry, f"{level}_layers"))
        facts.update("a divided row" for ranks in item.span_ranks if ranks > 1)
    for program in plan.programs:
        of_cut = [item for item in program.instructions if (program.replica, item.micro_batch) in cut]
        facts.update("several stages" if len(program.stages) > 1 else "one stage" for _ in of_cut)
        facts.update(schema.enum_name("Op", item.op) for item in of_cut)
        facts.update(name for item in of_cut if item.exchange is not None for name in NAMES if getattr(item.exchange, name))
    return facts


class MicroBatchesInParts(unittest.TestCase):
    def test_are_in_the_plans(self):
        """Without this the tests of such plans could be about whole ones."""
        seen = {name: facts_of_parts(case) for name, case in MADE.cases.items()}
        for name, facts in seen.items():
            if "parts" in name:
                self.assertNotEqual(facts, set(), name)
        expected = {"2 parts", "3 parts", "4 parts", "PADDED", "PACKED", "full", "selective", "a divided row", "several stages"}
        expected |= {"BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "slow ranks", "windows", "overlap", "overlap below 1"}
        expected |= {"a whole backward pass", "a backward pass in parts", "a row that is cut", "several meshes", "several nodes", "context_exposed_ns", "expert_exposed_ns"}
        self.assertEqual(expected - set().union(*seen.values()), set())

    def test_are_never_more_than_the_job_allows(self):
        case = MADE.cases["parts, selective"]
        counts = [len(item.part_rows) - 1 for replica in case.planned_batch.plan.replicas for item in replica.micro_batches]
        self.assertEqual(case.planned_batch.plan.options.most_parts, 3)
        self.assertEqual(max(counts), 3)

    def test_send_bytes_by_part(self):
        """Rounded down for each part: some cuts change what the micro-batch sends in all."""
        text = r"expert_bytes is \d+, (should be|expected) \d+"
        case = MADE.cases["experts, of eight ranks"]
        for damaged in self._cut_elsewhere(case.planned_batch):
            if re.search(text, "\n".join(MADE.read(case, damaged).lines())):
                settle(MADE.schema, damaged)
                self.assertRegex(MADE.verify(case, damaged)[1], text)
                return
        self.fail("bytes are the same of all cuts")

    @staticmethod
    def _cut_elsewhere(planned_batch):
        """With the first micro-batch in two parts, one row longer and shorter from plan to plan, and all numbers as they were."""
        rows = len(planned_batch.plan.replicas[0].micro_batches[0].samples)
        for row in range(1, rows):
            damaged = copy.deepcopy(planned_batch)
            damaged.plan.replicas[0].micro_batches[0].part_rows = [0, row, rows]
            yield damaged

    def test_cost_what_reader_and_verify_say_however_they_are_cut(self):
        generator, layouts = random.Random(17), set()
        for name, case in MADE.cases.items():
            try:
                drawn = with_drawn_parts(MADE.schema, case.planned_batch, case.profile_file, generator)
            except NoParts:
                continue
            with self.subTest(name):
                self.assertEqual(MADE.read(case, drawn).lines(), [])
                status, said = MADE.verify(case, drawn)
                self.assertEqual(status, 0, said)
            cut = [item for replica in drawn.plan.replicas for item in replica.micro_batches if item.part_rows]
            layouts.update(MADE.schema.enum_name("Layout", item.layout) for item in cut)
        self.assertEqual(layouts, {"PADDED", "PACKED", "CONCATENATED"})


class TheWorkedExample(unittest.TestCase):
    """Section 15 of execution.md: its files, its command and every row of its table."""

    SECTION = (PROTO_FOLDER / "penstock/v1/execution.md").read_text(encoding="utf-8").split("## 15.")[1]

    def test_has_the_numbers_of_its_plan(self):
        folder = MADE.folder / "example"
        folder.mkdir()
        profile, lengths = re.search(r"```json\n(.*?)```.*?```\n(.*?)```", self.SECTION, re.DOTALL).groups()
        (folder / "example.json").write_text(profile, encoding="utf-8")
        (folder / "lengths.csv").write_text(lengths, encoding="utf-8")
        command = re.search(r"`penstock (plan .*?)`", self.SECTION).group(1).split()
        done = subprocess.run(
            [os.environ["PENSTOCK_BINARY"], *command, "--out=plan.json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        planned_batch = load_message(MADE.schema, "PlannedBatch", folder / "plan.json")
        profile_file = load_message(MADE.schema, "ProfileFile", folder / "example.json")
        self.assertEqual(read_plan(MADE.schema, planned_batch, profile_file, check_habits=True).lines(), [])
        plan = planned_batch.plan
        rows = [line for line in self.SECTION.split("\n") if re.match(r"\| \d", line)]
        expected = [self._row(rank, item) for rank in (0, 3) for item in plan.programs[rank].instructions]
        self.assertEqual(rows, expected)
        for rank in (0, 3):
            predicted = plan.predicted.ranks[rank]
            bubble = [number for number in vars(predicted.bubble).values() if isinstance(number, int)]
            for number in (predicted.busy_ns, predicted.peak_memory_bytes, *bubble):
                self.assertRegex(self.SECTION, rf"\b{number}\b")

    @staticmethod
    def _row(rank, item):
        op = MADE.schema.enum_name("Op", item.op)
        cells = [rank, item.id, f"{op} {item.part}" if op in ("SEND", "RECV", "WAIT", "FREE") else op]
        cells += [", ".join(map(str, item.deps)), item.expected_start_ns, item.expected_duration_ns]
        cells += [item.own_duration_ns or "", item.memory_acquired_bytes, item.memory_released_bytes]
        return "|" + "|".join(f" {cell} " if cell != "" else " " for cell in cells) + "|"


def shortest_first(accept=lambda plan: True, before=lambda plan: True):
    """Cases of plans that are accepted, those of `before` first: to try a damage takes a copy of the plan, and to read it its length."""
    cases = [(name, case) for name, case in MADE.cases.items() if accept(case.planned_batch.plan)]
    return dict(sorted(cases, key=lambda item: (not before(item[1].planned_batch.plan), item[1].plan_path.stat().st_size)))


class TheReader(unittest.TestCase):
    def test_finds_planted_damage(self):
        """Each damage in the shortest plans that have what it changes."""
        cases = shortest_first(before=lambda plan: not plan.options.parameter_shares)
        for damage in DAMAGES:
            applied = 0
            with self.subTest(damage.name):
                for name, case in cases.items():
                    try:
                        damaged = damage.applied_to(MADE.schema, case.planned_batch)
                    except Inapplicable:
                        continue
                    found = MADE.read(case, damaged).topics() & damage.topics
                    if damage.name in OFTEN_HARMLESS and not found:
                        continue
                    self.assertTrue(found, f"not found in '{name}'")
                    applied += 1
                    if applied == 2:
                        break
                self.assertGreater(applied, 0, "it was found in no plan")

    def test_and_verify_find_damage_to_shares(self):
        self._both_find(DAMAGES_TO_SHARES, shortest_first(lambda plan: plan.options.parameter_shares, lambda plan: not plan.meshes))

    def test_and_verify_find_damage_to_meshes(self):
        self._both_find(DAMAGES_TO_MESHES, shortest_first(lambda plan: plan.options.parameter_shares, lambda plan: plan.meshes))

    def test_and_verify_find_damage_to_parts(self):
        cut = lambda plan: any(item.part_rows for replica in plan.replicas for item in replica.micro_batches)
        self._both_find(DAMAGES_TO_PARTS, shortest_first(before=cut))

    def _both_find(self, damages, cases):
        """Nothing but the damage is wrong in these plans: times, predictions and hash follow from it."""
        for damage in damages:
            applied = 0
            for name, case in cases.items():
                try:
                    damaged = damage.applied_to(MADE.schema, case.planned_batch)
                except Inapplicable:
                    continue
                settle(MADE.schema, damaged)
                with self.subTest(f"{damage.name} in '{name}'"):
                    self.assertNotEqual(MADE.read(case, damaged).topics() & damage.topics, set())
                    status, said = MADE.verify(case, damaged)
                    self.assertEqual(status, 1, said)
                    self.assertIn("breaks rules", said)
                applied += 1
                if applied == 2:
                    break
            self.assertGreater(applied, 0, f"no plan for {damage.name}")

    def test_and_verify_find_damage_to_validations(self):
        """Each in two plans: of a stage a rank, and of several."""
        for damage, name in itertools.product(VALIDATION_DAMAGES, ("validation", "validation, loop")):
            with self.subTest(f"{damage.name} in '{name}'"):
                case = MADE.cases[name]
                damaged = damage.applied_to(MADE.schema, case.planned_batch)
                self.assertNotEqual(MADE.read(case, damaged).lines(), [])
                status, said = MADE.verify(case, damaged)
                self.assertEqual(status, 1, said)

    def test_and_verify_find_a_validation_that_is_missing_or_too_many(self):
        case = MADE.cases["validation"]
        for of in ("batch", "plan"):
            damaged = copy.deepcopy(case.planned_batch)
            setattr(getattr(damaged, of), "validation", None)
            settle(MADE.schema, damaged)
            with self.subTest(of):
                self.assertIn("validation", MADE.read(case, damaged).topics())
                self.assertEqual(MADE.verify(case, damaged)[0], 1)

    def test_and_verify_accept_a_plan_that_is_settled_without_damage(self):
        for name in ("shares, loop", "side by side", "side by side, experts"):
            with self.subTest(name):
                case = MADE.cases[name]
                same = copy.deepcopy(case.planned_batch)
                settle(MADE.schema, same)
                self.assertEqual(same, case.planned_batch)
                self.assertEqual(MADE.verify(case, same)[0], 0)

    def test_and_verify_agree_on_what_a_batch_weighs_in_the_loss(self):
        """Samples with weights and one without, whose positions count; of a GPT and a T5."""
        for name in ("loop", "T5, packed"):
            case = MADE.cases[name]
            weighted = copy.deepcopy(case.planned_batch)
            for place, sample in enumerate(weighted.batch.samples):
                sample.task = place % 3
                if place != 1:
                    sample.loss_weight = 0.3 * place
            plan = weighted.plan
            plan.loss_weight = loss_weight(plan.model.architecture == 2, weighted.batch.samples)
            for change, status in ((0.0, 0), (1e-9, 1), (-plan.loss_weight, 1)):
                changed = copy.deepcopy(weighted)
                changed.plan.loss_weight += change
                settle(MADE.schema, changed)
                with self.subTest(f"{name}, {change}"):
                    self.assertEqual(bool(MADE.read(case, changed).topics() & {"rule 7"}), status == 1)
                    self.assertEqual(MADE.verify(case, changed)[0], status, MADE.verify(case, changed)[1])

    def test_exits_with_what_it_found(self):
        case = MADE.cases["loop"]
        bad = MADE.folder / "bad.json"
        plan = json.loads(case.plan_path.read_text(encoding="utf-8"))
        plan["plan"]["programs"][0]["instructions"][-1]["expected_duration_ns"] = "1"
        bad.write_text(json.dumps(plan), encoding="utf-8")
        for path, status, text in (
            (case.plan_path, 0, "0 differ"),
            (bad, 1, "expected_duration_ns is 1, should be"),
            (MADE.folder / "none.json", 2, "No such file"),
            (case.profile_path, 2, "has no field 'model'"),
        ):
            command = [sys.executable, str(Path(__file__).parent / "read_plan.py"), str(path), "--profile", str(case.profile_path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stdout)
            self.assertIn(text, done.stdout)


# These break the contract in some plans only: where memory is not tight, or where the order of a stream says the same as a dep.
OFTEN_HARMLESS = {
    "RECVs without deps",
    "SEND without deps",
    "WAIT without deps",
    "two transfers of two links swapped",
    "REDUCE_GRADIENTS without deps",
}


class MemoryInEveryOrder(unittest.TestCase):
    COMPUTE, OTHERS = 1, (2, 3)

    def test_is_the_largest_of_all_orders(self):
        """Against every order that a small random program allows."""
        generator = random.Random(11)
        for _ in range(200):
            program = self._random_program(generator)
            with self.subTest(str(program)):
                self.assertEqual(largest_in_every_order(program, self.COMPUTE)[0], self._by_trying(program))

    def _random_program(self, generator):
        """Compute instructions take and give back, others only take, as RECVs do; an idle compute instruction comes last."""
        instructions = []
        for position in range(8):
            is_last = position == 7
            stream = self.COMPUTE if is_last else generator.choice((self.COMPUTE, *self.OTHERS))
            deps = [earlier for earlier in range(position) if is_last or generator.random() < 0.25]
            gives = generator.randrange(50) if stream == self.COMPUTE and not is_last else 0
            instructions.append(
                SimpleNamespace(
                    id=position,
                    stream=stream,
                    deps=deps,
                    memory_acquired_bytes=0 if is_last else generator.randrange(100),
                    memory_released_bytes=gives,
                )
            )
        return SimpleNamespace(static_memory_bytes=1000, instructions=instructions)

    def _by_trying(self, program):
        """The largest account over all ways to start and end instructions."""
        items = program.instructions
        before = [
            set(item.deps) | {other.id for other in items[: item.id] if other.stream == item.stream} for item in items
        ]
        largest, seen = 0, set()
        states = [(frozenset(), frozenset())]  # started, ended
        while states:
            started, ended = state = states.pop()
            if state in seen:
                continue
            seen.add(state)
            account = program.static_memory_bytes + sum(items[index].memory_acquired_bytes for index in started)
            largest = max(largest, account - sum(items[index].memory_released_bytes for index in ended))
            for item in items:
                if item.id not in started and before[item.id] <= ended:
                    states.append((started | {item.id}, ended))
                elif item.id in started and item.id not in ended:
                    states.append((started, ended | {item.id}))
        return largest


if __name__ == "__main__":
    unittest.main()
