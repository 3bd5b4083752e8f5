# Functions for scripts in a lab machine. Starting a program is slow under emulation: read sysfs with the shell's own read.

# rename MAC NAME: gives the interface with this hardware address a name.
rename() {
	local p mac
	for p in /sys/class/net/*; do
		read -r mac <"$p/address"
		[ "$mac" = "$1" ] && { ip link set "${p##*/}" name "$2"; return; }
	done
	echo "lab: no interface has the address $1 ($2)" >&2
	return 1
}

# active DEVICE IFACE GID: waits until the port is active, its interface is up and it has a GID that ends so.
active() {
	local i port=/sys/class/infiniband/$1/ports/1 state oper gid0 gid1
	for ((i = 0; i < 600; i++)); do
		read -r state <"$port/state"
		read -r oper <"/sys/class/net/$2/operstate"
		read -r gid0 <"$port/gids/0"
		read -r gid1 <"$port/gids/1"
		[ "$state $oper" = "4: ACTIVE up" ] && case "$gid0 $gid1" in *"$3"*) return 0 ;; esac
		sleep 0.1
	done
	echo "lab: $1 is '$state', $2 is $oper, GIDs $gid0 and $gid1; expected '4: ACTIVE', up and a GID ending in $3" >&2
	return 1
}

# hw_counter NAME: prints "DEVICE NAME VALUE" for every RDMA device.
hw_counter() {
	local d value
	for d in /sys/class/infiniband/*; do
		read -r value <"$d/ports/1/hw_counters/$1"
		echo "${d##*/} $1 $value"
	done
}

# link_down IFACE, link_up IFACE: what an administrator does; the lab's own cable pulling leaves the interface up.
link_down() { ip link set "$1" down; }
link_up() { ip link set "$1" up; }

# netem IFACE ARG...: makes the interface lose, delay or reorder what it sends ("loss 1%", "delay 20ms"); netem_off IFACE ends it.
netem() {
	local iface=$1
	shift
	tc qdisc replace dev "$iface" root netem "$@"
}
netem_off() { tc qdisc del dev "$1" root; }
