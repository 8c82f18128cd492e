#!/usr/bin/env perl
# The plugin of the conformance suite: does what `params.do` says.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../../perl/lib";
use Disbatch::Client::Task;

sub act {
    my ($task, $verb, @args) = @_;
    if ($verb eq 'tell') {
        $task->result({ id => $task->id, queue => $task->env->{DISBATCH_QUEUE}, storage => $task->storage, attempt => $task->attempt });
    }
    elsif ($verb eq 'ask' && $task->answer) {
        $task->result({ value => $task->answer->{value}, attempt => $task->answer->{attempt} });
    }
    elsif ($verb eq 'fail') {
        die "$args[0]\n";
    }
    elsif ($verb eq 'until_cancelled') {
        select undef, undef, undef, 0.02 until $task->cancelled;
        $task->log('cancelled as asked');
    }
    else {
        $task->$verb(@args);
    }
}

sub work {
    my ($task) = @_;
    act($task, @$_) for @{ $task->params->{do} };
}

sub answer {
    my ($task) = @_;
    return $task->done if eval { work($task); 1 };
    my $why = $@;
    chomp $why;
    $task->log($why);
    $task->done(1);
}

if (($ARGV[0] // '') eq 'batch') {
    Disbatch::Client::Task->run_batch(sub { answer($_) for @_ });
}
else {
    Disbatch::Client::Task->run(\&work);
}
