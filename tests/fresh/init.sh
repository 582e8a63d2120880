# The first process of a fresh machine: it mounts what a machine has, and waits. Everything of the machine ends with it.
# It has new namespaces and still this machine's root. Its standard input closes when the machine is to end.
# Environment: SCRATCH, a directory of its own; DISK, whether what is written there stays after the end, or empty; LAYERS, directories for overlayfs, the uppermost first; CGROUPS, lines
# of kind, options and mount point; SHARED, lines of a name below /srv and the
# directory that is seen there, read-only.
set -eu
read -r pid _ < /proc/self/stat  # /proc is still this machine's
[ -n "$DISK" ] || mount -t tmpfs -o mode=755 scratch "$SCRATCH"
(cd "$SCRATCH" && mkdir root upper work lib && mkdir -m 1777 tmp)
root=$SCRATCH/root
mount -t overlay -o "lowerdir=$LAYERS,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" fresh "$root"
# Not on overlayfs, which another overlayfs cannot have as its upper layer; a real machine's disk can be that.
mount --bind "$SCRATCH/tmp" "$root/tmp"
cp -a "$root/var/lib/." "$SCRATCH/lib"
mount --bind "$SCRATCH/lib" "$root/var/lib"

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
mount -t tmpfs -o mode=755,nosuid,nodev run "$root/run"
mkdir -m 1777 "$root/run/lock"

mount -t tmpfs -o mode=755,nosuid dev "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,nosuid,noexec devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"

# With cgroup v2 alone the next mount hides this one.
mount -t tmpfs -o mode=755,nosuid,nodev,noexec cgroup "$root/sys/fs/cgroup"
printf %s "$CGROUPS" | while read -r kind options point; do
    mkdir -p "$root$point"
    mount -t "$kind" -o "$options" "$kind" "$root$point"
done

printf %s "$SHARED" | while read -r name directory; do
    mkdir -p "$root/srv/$name"
    mount --bind "$directory" "$root/srv/$name"
    mount -o remount,bind,ro "$root/srv/$name"
done

ip link set lo up
hostname fresh
cd "$root"
mkdir -p .old
pivot_root . .old
mount --make-rprivate /
umount -l /.old
rmdir /.old
mount --make-rshared /  # as systemd has it
exec 3<&0
cat <&3 > /dev/null &
echo "$pid"
wait $!  # meanwhile the shell reaps orphans, as the first process has to
