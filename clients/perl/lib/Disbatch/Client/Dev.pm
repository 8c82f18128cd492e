package Disbatch::Client::Dev;

# A Disbatch for tests: `disbatch dev` in a folder of its own, as long as this object lives.

use 5.026;
use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();
use IO::Socket::INET ();
use JSON::PP ();
use POSIX ();
use Time::HiRes ();

use Disbatch::Client;

my $READY         = 'following the logs';
my $PORT_IS_TAKEN = 'cannot be used; choose another with --port';

# `plugins`: folders of plugins. `program`: `disbatch`, else DISBATCH_PROGRAM or that in PATH. `timeout`: seconds that it may take to start.
sub new {
    my ($class, %options) = @_;
    my ($self, $said) = _start($class, %options);
    # Somebody else may have been faster.
    ($self, $said) = _start($class, %options) if !$self && $said =~ /\Q$PORT_IS_TAKEN/;
    return $self // croak "disbatch dev did not start:\n$said";
}

sub free_port {
    my $free = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', Proto => 'tcp') or croak "no port is free: $!";
    return $free->sockport;
}

# The object, or nothing and what was said.
sub _start {
    my ($class, %options) = @_;
    my $folder = File::Temp->newdir('disbatch-dev-XXXXXXXX', TMPDIR => 1);
    my $port = free_port();
    my $program = $options{program} // $ENV{DISBATCH_PROGRAM} // 'disbatch';
    my @command = ($program, 'dev', '--data', "$folder", '--port', $port, map { ('--plugins', $_) } @{ $options{plugins} // [] });
    my $log = "$folder.log";
    my $pid = fork // croak "cannot start $program: $!";
    if (!$pid) {
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', $log;
        open STDERR, '>&', \*STDOUT;
        exec { $command[0] } @command or print "cannot start $program: $!; name it in DISBATCH_PROGRAM\n";
        POSIX::_exit(127);
    }
    my $self = bless { folder => $folder, pid => $pid, owner => $$, logfile => $log, client => Disbatch::Client->new(url => "http://127.0.0.1:$port") }, $class;
    my $end = Time::HiRes::time() + ($options{timeout} // 120);
    until ($self->log =~ /\Q$READY/) {
        my $ended = waitpid $pid, POSIX::WNOHANG();
        if ($ended || Time::HiRes::time() > $end) {
            my $said = $self->log;
            if ($ended) {
                delete $self->{pid};
                unlink $log;
            }
            return (undef, $said);
        }
        Time::HiRes::sleep(0.05);
    }
    return $self;
}

sub client { $_[0]{client} }
sub url    { $_[0]{client}->url }

# Where its MongoDB is, with the name of its database, for what writes into the inbox.
sub mongodb {
    my ($self) = @_;
    open my $file, '<', "$self->{folder}/config.json" or croak "there is no configuration: $!";
    my $config = do { local $/; JSON::PP->new->utf8->decode(scalar <$file>) };
    return $config->{mongohost} =~ s{/\?}{/$config->{database}?}r;
}

# What it and its processes have said.
sub log {
    my ($self) = @_;
    open my $log, '<', $self->{logfile} or return '';
    local $/;
    return scalar(<$log>) // '';
}

# A queue that runs tasks; returns its name.
sub queue {
    my ($self, $name, $plugin, %settings) = @_;
    $self->client->create_queue($name, $plugin, threads => 4, %settings);
    return $name;
}

# Waits until all tasks of the queue have ended, and returns them in the order of their submission.
sub drain {
    my ($self, $queue, %options) = @_;
    my $end = Time::HiRes::time() + ($options{timeout} // 60);
    my @live = qw(queued claimed running blocked deferred);
    while (my @tasks = @{ $self->client->list(queue => $queue, status => \@live) }) {
        for my $task (@tasks) {
            my $left = $end - Time::HiRes::time();
            $self->client->wait($task->{id}, timeout => $left > 0 ? $left : 0);
        }
    }
    return [map { $self->client->get($_->{id}) } reverse @{ $self->client->list(queue => $queue) }];
}

# Ends all of it, running tasks too.
sub stop {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    local $?;
    # The second signal does not wait for tasks.
    for my $signal (qw(TERM TERM KILL)) {
        kill $signal => $pid;
        my $end = Time::HiRes::time() + 20;
        while (Time::HiRes::time() < $end) {
            if (waitpid $pid, POSIX::WNOHANG()) {
                unlink $self->{logfile};
                return;
            }
            Time::HiRes::sleep(0.05);
        }
    }
}

sub DESTROY {
    my ($self) = @_;
    # Not in a process that a test has forked.
    $self->stop if $self->{owner} && $self->{owner} == $$;
}

1;
