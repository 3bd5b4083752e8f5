/* Moves bytes between this process and another, without its help. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

/* Memory that a device driver mapped cannot be reached by process_vm_*, but often through /proc/<pid>/mem. */
static int copy_mem(int pid, bool write, const struct iovec *mine, int nmine, const struct iovec *theirs, const struct shm_lock *l)
{
	uint64_t at = (uint64_t)theirs[0].iov_base, left = theirs[0].iov_len;
	char path[64];
	int fd, t = 0, err = 0;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, (write ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? ESRCH : errno;
	for (int i = 0; i < nmine && !err; i++) {
		char *p = mine[i].iov_base;
		size_t n = mine[i].iov_len;

		while (n) {
			size_t part;
			ssize_t done;

			while (left == 0) {
				t++;
				at = (uint64_t)theirs[t].iov_base;
				left = theirs[t].iov_len;
			}
			if (!shm_holds(l)) {
				close(fd);
				return ESRCH;
			}
			part = n < left ? n : left;
			done = write ? pwrite(fd, p, part, (off_t)at) : pread(fd, p, part, (off_t)at);
			if (done <= 0) {
				err = done == 0 || errno == EIO ? EFAULT : errno;
				break;
			}
			p += done;
			n -= (size_t)done;
			at += (uint64_t)done;
			left -= (uint64_t)done;
		}
	}
	close(fd);
	return err;
}

static uint64_t vector(struct iovec *v, const struct span *s, int n)
{
	uint64_t total = 0;

	for (int i = 0; i < n; i++) {
		v[i].iov_base = (void *)s[i].addr;
		v[i].iov_len = s[i].length;
		total += s[i].length;
	}
	return total;
}

/* Copies between this process and the peer's, whose lock the caller holds. The kernel reads the peer's ranges where the peer can take
 * them back; see qp_lock. */
static int copy(struct shm_qp *peer, bool write, const struct iovec *mine, int nmine, const struct iovec *theirs, int ntheirs, uint64_t total)
{
	const struct iovec *shown = (const struct iovec *)peer->copy.span;
	unsigned long n = (unsigned long)ntheirs;
	int pid = shm->proc[peer->proc].pid, err;
	ssize_t done;

	for (int i = 0; i < ntheirs; i++) {
		peer->copy.span[i].addr = (uint64_t)theirs[i].iov_base;
		__atomic_store_n(&peer->copy.span[i].length, theirs[i].iov_len, __ATOMIC_SEQ_CST);
	}
	atomic_store(&peer->copy.copier, thread_id());
	done = -1;
	errno = ESRCH;
	if (shm_holds(&peer->lock)) /* stopped before the ranges were there for all to see */
		done = write ? process_vm_writev(pid, mine, (unsigned long)nmine, shown, n, 0) : process_vm_readv(pid, mine, (unsigned long)nmine, shown, n, 0);
	err = done == (ssize_t)total ? 0 : done < 0 && errno != EFAULT ? errno : EFAULT;
	if (err == EFAULT)
		err = copy_mem(pid, write, mine, nmine, theirs, &peer->lock);
	atomic_compare_exchange_strong(&peer->copy.copier, &(uint32_t){thread_id()}, 0);
	return err;
}

/* Copies to the peer's memory; 0 or errno (ESRCH: it is gone). The last 64 bytes land after all others, and the last 8 after
 * those: the kernel works through the remote ranges in order, as a network card does, and a peer may poll the last word. */
int copy_write(struct shm_qp *peer, const struct span *from, int nfrom, const struct span *to, int nto)
{
	struct iovec mine[MAX_VEC], theirs[MAX_VEC];
	uint64_t total = vector(mine, from, nfrom);
	struct span last;
	int n = nto - 1;

	if (total == 0)
		return 0;
	vector(theirs, to, n);
	last = to[n];
	for (uint64_t keep = 64; keep >= 8; keep /= 8)
		if (last.length > keep) {
			theirs[n].iov_base = (void *)last.addr;
			theirs[n++].iov_len = last.length - keep;
			last.addr += last.length - keep;
			last.length = keep;
		}
	theirs[n].iov_base = (void *)last.addr;
	theirs[n++].iov_len = last.length;
	return copy(peer, true, mine, nfrom, theirs, n, total);
}

int copy_read(struct shm_qp *peer, const struct span *to, int nto, const struct span *from, int nfrom)
{
	struct iovec mine[MAX_VEC], theirs[MAX_VEC];
	uint64_t total = vector(mine, to, nto);

	if (total == 0)
		return 0;
	vector(theirs, from, nfrom);
	return copy(peer, false, mine, nto, theirs, nfrom, total);
}
