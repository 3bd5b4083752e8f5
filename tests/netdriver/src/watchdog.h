/* Ends the process, saying where it stands, when nothing has moved for too long or a rank has left. */
#ifndef NETDRIVER_WATCHDOG_H
#define NETDRIVER_WATCHDOG_H

struct rendezvous;

void watchdog_start(double timeout, struct rendezvous *rv);
void watchdog_stop(void);

/* watchdog_fed: something moved. */
void watchdog_fed(void);

/* watchdog_describe sets who says what is outstanding; NULL: nobody. */
void watchdog_describe(void (*describe)(void *), void *arg);

/* watchdog_expect_loss: from now on a rank may leave. */
void watchdog_expect_loss(void);

#endif
