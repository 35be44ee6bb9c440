# Starts Slurm on this machine, for a test: munged, slurmctld and slurmd with one node, in the folder $1, without access to an
# installed configuration. To be sourced, as root; needs Debian's slurm-wlm and munge. Exports SLURM_CONF; stop_slurm ends it.
# shellcheck shell=bash
slurm_folder=$1
slurm_cores=$(nproc)
[ "$slurm_cores" -ge 2 ] || slurm_cores=2
mkdir -p "$slurm_folder"/{state,spool,munge}
chmod 755 "$slurm_folder" "$slurm_folder/munge"
dd if=/dev/urandom of="$slurm_folder/munge/key" bs=1024 count=1 2>/dev/null
chmod 600 "$slurm_folder/munge/key"
export SLURM_CONF=$slurm_folder/slurm.conf
cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd.pid
SlurmctldLogFile=$slurm_folder/slurmctld.log
SlurmdLogFile=$slurm_folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
KillWait=10
MinJobAge=2
ReturnToService=2
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=$slurm_cores RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=$(hostname) Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END
munged --foreground --force --socket="$slurm_folder/munge/socket" --key-file="$slurm_folder/munge/key" \
    --pid-file="$slurm_folder/munge/pid" --seed-file="$slurm_folder/munge/seed" --log-file="$slurm_folder/munge/log" &
slurm_processes=$!
slurmctld -D -i >"$slurm_folder/slurmctld.out" 2>&1 &
slurm_processes="$slurm_processes $!"
slurmd -D >"$slurm_folder/slurmd.out" 2>&1 &
slurm_processes="$slurm_processes $!"

stop_slurm() {
    # shellcheck disable=SC2086
    kill $slurm_processes 2>/dev/null
    # shellcheck disable=SC2086
    wait $slurm_processes 2>/dev/null
}

slurm_waited=0
while ! grep -q '^idle' <(sinfo -h -o %T 2>/dev/null); do
    if [ $((slurm_waited += 1)) -gt 300 ]; then
        tail -n 20 "$slurm_folder"/*.out "$slurm_folder"/*.log >&2
        echo "Slurm did not start" >&2
        stop_slurm
        exit 1
    fi
    sleep 0.1
done
