#!/usr/bin/env bash
# Tests of `xformer sweep --executor slurm` on a Slurm of its own: munged, slurmctld and slurmd on loopback, with all their
# files in a temporary folder. Needs root and the packages munge, slurmctld, slurmd and slurm-client; without them it skips.
# usage: slurm_test.sh PROGRAM
set -euo pipefail

program=$(readlink -f -- "$1")
export PATH=$PATH:/usr/sbin
for tool in munged slurmctld slurmd sbatch squeue scontrol scancel; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed" && exit 77; }
done
((EUID == 0)) || { echo "skipped: slurmd wants to be root" && exit 77; }
. "$(dirname -- "${BASH_SOURCE[0]}")/checks.sh"

work=$(mktemp -d)
# Everything that runs below has this variable with this folder's name, the daemons' own children too.
processes() { grep -lsF -- "SLURM_CONF=$work/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3 || true; }
clean_up() {
  local process
  for _ in {1..50}; do
    local -i alive=0
    for process in $(processes); do
      kill -KILL "$process" 2>/dev/null && alive+=1
    done
    ((alive > 0)) || break
    sleep 0.1
  done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

until_true() { # SECONDS COMMAND...
  local -i end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
lacks() { [[ $1 != *"$2"* ]]; }
verify() { # as check, with a line for what holds
  local -i before=$failed
  check "$@"
  ((failed > before)) || printf 'ok: %s\n' "$1"
}

# --- a Slurm of its own -------------------------------------------------------------------------------------------------

unset "${!SLURM_@}" "${!SBATCH_@}" "${!SQUEUE_@}" "${!SCANCEL_@}"
export SLURM_CONF=$work/slurm.conf XFORMER_CACHE=$work/cache OMP_WAIT_POLICY=passive
chmod 755 "$work" # munged wants its socket within everyone's reach; its key is closed
mkdir "$work"/{munge,state,spool,bin}
cd "$work"

free_port() { # a port on loopback at which nobody answers, other than $1
  local -i port
  for _ in {1..100}; do
    port=$((20000 + RANDOM % 10000))
    [[ $port != "$1" ]] && ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && echo "$port" && return
  done
  return 1
}
controller_port=$(free_port 0)
node_port=$(free_port "$controller_port")
node=${HOSTNAME%%.*}
# Jobs that are queued again wait until their credential has expired. What Slurm does after a preemption differs with the
# mode: those that are cancelled the task itself has to queue again.
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
MaxArraySize=4
SchedulerParameters=batch_sched_delay=1,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=$node Default=YES PriorityTier=2 PreemptMode=OFF
PartitionName=low Nodes=$node PriorityTier=1 PreemptMode=CANCEL
CONF

daemon() { # NAME COMMAND...: its words in NAME.log
  "${@:2}" >"$1.log" 2>&1 </dev/null &
  disown
}
give_up() { # WHAT
  printf '%s within its time\n' "$1"
  tail -n 20 ./*.log
  exit 1
}
node_is_idle() { [[ $(scontrol --oneliner show node "$node" 2>/dev/null) == *" State=IDLE "* ]]; }
(umask 077 && head -c 128 /dev/urandom >munge/key)
daemon munged munged --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" \
  --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" --log-file="$work/munge/log"
until_true 10 test -S munge/socket || give_up "munged made no socket"
daemon slurmctld slurmctld -D
daemon slurmd slurmd -D
until_true 60 node_is_idle || give_up "the node was not idle"
printf '%s: a node is idle after %s s\n' "$(slurmctld -V)" "$SECONDS"

# --- submission ---------------------------------------------------------------------------------------------------------

# Runs a sweep; leaves $code and $text.
sweep() {
  code=0
  text=$("$program" sweep "$@" --device cpu 2>&1 </dev/null) || code=$?
}
queued() { squeue --noheader --array --jobs="$1" --format=%T; } # JOB: a state for each of its tasks that is in the queue
is_gone() { # JOB
  local states
  states=$(queued "$1") && [[ -z $states ]]
}
journal_has() { grep -c -- "$2" "$1/journal.jsonl" || true; } # OUT PATTERN: in how many lines

cat >small.json <<'JSON'
{
  "title": "Small", "tasks": ["listops"], "models": ["none", "linear"], "seeds": "0-1", "steps": 24,
  "set": {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "model.classifier_dim": 16, "data.min_length": 10,
          "data.max_length": 60, "data.train_examples": 256, "data.dev_examples": 32, "data.test_examples": 32,
          "training.batch": 8, "training.eval_every": 2, "training.log_every": 2, "model.dropout": 0.1}
}
JSON
small=(small.json --out small --threads 1 --jobs 2)

sweep "${small[@]}" --executor slurm --slurm=--hold
job=${text##* }
verify "a submission tells the cells and the job" equal "$code $text" "0 submitted 4 cells as job array $job"
verify "the job has a task for each cell" equal "$(queued "$job" | sort | uniq -c | xargs)" "4 PENDING"
verify "two of them at a time" contains "$(scontrol show job "$job")" "ArrayTaskThrottle=2"
sweep "${small[@]}" --executor slurm --slurm=--hold
verify "asked again it submits nothing" contains "$code $text" "0 nothing to submit: 4 cells are queued"
verify "the journal has one submission" equal "$(journal_has small '"event":"submitted"')" 1
sweep "${small[@]}" --executor slurm --slurm=--partition=nowhere --seeds 7
verify "what sbatch refuses is a resource that is missing" equal "$code" 4
verify "its reason is told" contains "$text" "nvalid partition"
verify "and no submission noted" equal "$(journal_has small '"event":"submitted"')" 1

scontrol release "$job" || true
verify "all tasks end" until_true 60 is_gone "$job"
verify "every cell is completed" equal \
  "$(grep '"status":"completed"' small/journal.jsonl | grep -o '"cell":"[^"]*"' | sort | uniq -c | awk '{ print $1 }' | xargs)" \
  "1 1 1 1"
verify "each task wrote its log beside the runs" equal "$(grep -l 'cells completed' small/slurm-"$job"_[0-3].log | wc -l)" 4
sweep "${small[@]}" --executor slurm
verify "then there is nothing left to submit" contains "$code $text" "0 nothing to submit: 0 cells are queued"
sweep "${small[@]}"
verify "a local sweep finds all completed" contains "$code $text" "Small: 4 of 4 cells completed"
verify "and starts none" equal "$(journal_has small '"event":"started"')" 4

sweep small.json --out many --seeds 0-2 --jobs 2 --executor slurm --slurm=--hold --threads 1
jobs=($(squeue --noheader --format=%F | sort -un))
verify "more tasks than MaxArraySize become two arrays" equal "$code $text" \
  "0 submitted 4 cells as job array ${jobs[0]-}"$'\n'"submitted 2 cells as job array ${jobs[1]-}"
verify "the second waits for the first" contains "$(scontrol show job "${jobs[1]-0}")" "Dependency=afterany:${jobs[0]-}"
verify "a task has as many processors as threads" contains "$(scontrol show job "${jobs[0]-0}")" "NumCPUs=1"
sweep small.json --out many --seeds 0-2 --executor slurm
verify "the cells of both are queued" contains "$code $text" "0 nothing to submit: 6 cells are queued"
scancel "${jobs[@]}" || true

sweep small.json --out packed --threads 1 --cells-per-job 3 --executor slurm
verify "small cells share a task" contains "$code $text" "0 submitted 4 cells as job array"
job=${text#*array }
job=${job%%,*}
verify "of which there are two" until_true 60 is_gone "$job"
verify "and all are completed" equal "$(journal_has packed '"status":"completed"')" 4
verify "in two logs" equal "$(ls packed/slurm-"$job"_*.log | wc -l)" 2

cp small.json 'a small one.json'
sweep 'a small one.json' --out "a person's 5%" --threads 1 --seeds 0 --only none --executor slurm
job=${text##* }
verify "names with blanks, quotes and percent signs are taken" equal "$code $text" "0 submitted 1 cells as job array $job"
((code != 0)) || verify "its task ends" until_true 60 is_gone "$job"
verify "its log lies where the runs do" test -s "a person's 5%/slurm-${job}_0.log"

# A site's plugins may talk while sbatch submits.
printf '#!/bin/sh\necho "sbatch: 7 days are free" >&2\n%s "$@"\ncode=$?\necho "sbatch: thanks" >&2\nexit $code\n' \
  "$(command -v sbatch)" >bin/sbatch
chmod +x bin/sbatch
PATH=$work/bin:$PATH sweep small.json --out talk --jobs 4 --executor slurm --slurm=--hold
job=$(squeue --noheader --format=%F)
verify "what else sbatch says is no failure" equal "$code $text" "0 submitted 4 cells as job array $job"
verify "tasks do not share the processors of the machine that submits" \
  lacks "$(scontrol write batch_script "$job" - 2>&1)" "--threads"
scancel "$job" || true
verify "a held job that is cancelled leaves the queue" until_true 20 is_gone "$job"

# --- notice, requeue, preemption, cancellation --------------------------------------------------------------------------

printf '{"extends": "small.json", "title": "Long", "models": ["linear"], "steps": 1000}\n' >long.json
printf '{"extends": "long.json", "title": "Endless", "seeds": [0], "steps": 1000000}\n' >endless.json
# OUT SEED: whether its metric log has a step; the steps at which it was gone on with.
trains() { grep -qs '"train"' "$1"/listops/linear/*/"$2"/log.jsonl; }
resumed_at() { sed -nE 's/.*"event":"resumed","step":([0-9]+).*/\1/p' "$1"/listops/linear/*/"$2"/log.jsonl; }
resumed() { [[ -n $(resumed_at "$@") ]]; }
waits() { [[ $(queued "$1" | sort -u) == PENDING ]]; } # JOB: all its tasks
within() { [[ $1 =~ ^[0-9]+$ ]] && (($1 > 0 && $1 < $2)); }

sweep long.json --out long --threads 1 --jobs 2 --executor slurm
job=${text##* }
verify "the first task trains" until_true 60 trains long 0
verify "the second task trains" until_true 60 trains long 1
scancel --signal=TERM --batch "${job}_0" || true # as before the end of its time
scontrol requeue "${job}_1" || true
verify "a task that got notice waits in the queue again, and so does one that Slurm queued again" until_true 30 waits "$job"
sweep long.json --out long --threads 1 --jobs 2 --executor slurm
verify "cells that wait again are not submitted again" contains "$code $text" "0 nothing to submit: 2 cells are queued"

sweep endless.json --out endless --threads 1 --executor slurm --slurm=--partition=low
endless=${text##* }
verify "a task of a partition that gives way trains" until_true 90 trains endless 0
sbatch --quiet --exclusive --output=/dev/null --wrap=true || true
verify "a preempted task goes on" until_true 90 resumed endless 0
verify "from a step above 0" within "$(resumed_at endless 0)" 1000000
scancel "$endless" || true
verify "a task that is cancelled saves and stays away" until_true 30 is_gone "$endless"
verify "it was started twice" equal "$(journal_has endless '"event":"started"')" 2
verify "and saved both times" equal "$(journal_has endless '"status":"interrupted"')" 2
sweep endless.json --out endless --threads 1 --executor slurm --slurm=--hold
verify "it can be submitted again" contains "$code $text" "0 submitted 1 cells"
scancel --user=root --name=xformer-endless

verify "both of the others end" until_true 90 is_gone "$job"
verify "the one with notice went on from its checkpoint" within "$(resumed_at long 0)" 1000
verify "and so did the other" within "$(resumed_at long 1)" 1000
verify "both are completed" equal "$(journal_has long '"status":"completed"')" 2
verify "each was started twice" equal "$(journal_has long '"event":"started"')" 4
sweep long.json --out long --threads 1
verify "a local sweep has nothing to do" contains "$code $text" "Long: 2 of 2 cells completed"

printf '%s passed, %s failed, %s s\n' "$passed" "$failed" "$SECONDS"
((failed == 0))
