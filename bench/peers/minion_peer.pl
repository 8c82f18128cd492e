#!/usr/bin/perl
# Minion on PostgreSQL: one worker, which forks for each job.
use Mojo::Base -strict, -signatures;
use Fcntl       qw(O_RDWR O_WRONLY);
use Mojo::JSON  qw(encode_json);
use POSIX       qw(mkfifo);
use Time::HiRes qw(CLOCK_MONOTONIC CLOCK_REALTIME clock_gettime sleep);

use Minion;

my ($command, $number, $width) = @ARGV;
my $jobs_at_once = $width // 4;    # Minion's own number.
my $pipe_path    = "$ENV{BENCH_FOLDER}/starts";

sub new_minion () {
  my $minion = Minion->new(Pg => $ENV{BENCH_ADDRESS});
  $minion->add_task(nothing => sub { });
  $minion->add_task(
    started => sub {
      my $now = clock_gettime(CLOCK_REALTIME);
      sysopen my $pipe, $pipe_path, O_WRONLY or die $!;
      syswrite $pipe, sprintf("%.7f\n", $now);
    }
  );
  return $minion;
}

sub start_worker () {
  my $pid = fork // die $!;
  return $pid if $pid;
  my $worker = new_minion()->worker;
  $worker->status->{jobs} = $jobs_at_once;
  $worker->run;
  POSIX::_exit(0);
}

sub wait_for ($db, $count) {
  my $deadline = clock_gettime(CLOCK_MONOTONIC) + 300;
  while ((my $done = $db->query("select count(*) from minion_jobs where state = 'finished'")->array->[0]) < $count) {
    die "$done of $count jobs are done, and no more\n" if clock_gettime(CLOCK_MONOTONIC) > $deadline;
    sleep 0.025;
  }
}

# The worker stands still until it is told to continue: jobs wait in its queue as they would under load.
sub prepare ($minion, $worker, $count) {
  kill STOP => $worker;
  $minion->enqueue('nothing') for 1 .. $count;
}

sub drain ($minion, $worker) {
  my $db   = $minion->backend->pg->db;
  my $warm = $jobs_at_once * 2;
  prepare($minion, $worker, $warm);
  kill CONT => $worker;
  wait_for($db, $warm);
  prepare($minion, $worker, $number);
  # What the server's housekeeping would have done after a while.
  $db->query('vacuum analyze minion_jobs');
  sleep 1;
  my $begun = clock_gettime(CLOCK_MONOTONIC);
  kill CONT => $worker;
  wait_for($db, $warm + $number);
  say encode_json({seconds => clock_gettime(CLOCK_MONOTONIC) - $begun});
}

# The first job is not counted, since it makes connections.
sub latency ($minion) {
  mkfifo($pipe_path, 0600)           or die $!;
  sysopen my $pipe, $pipe_path, O_RDWR or die $!;
  my @waited;
  for my $sample (0 .. $number) {
    sleep 0.2 + $sample * 37 % 100 / 1000;
    my $begun = clock_gettime(CLOCK_REALTIME);
    $minion->enqueue('started');
    push @waited, (readline($pipe) - $begun) * 1000;
  }
  shift @waited;
  say encode_json({milliseconds => \@waited});
}

new_minion()->reset({all => 1});
my $worker = start_worker();
my $minion = new_minion();
my $ok     = eval { $command eq 'drain' ? drain($minion, $worker) : latency($minion); 1 };
my $error  = $@;
kill KILL => $worker;
waitpid $worker, 0;
die $error unless $ok;
