#!/usr/bin/env perl
# @NAME@: greets params.name.
use strict;
use warnings;

use IO::Handle;
use JSON::PP;

my $task = decode_json(do { local $/; <STDIN> });
my $name = $task->{params}{name} // 'world';

# Without a runner there is no control descriptor, and what is said goes nowhere.
my $number = $ENV{DISBATCH_CONTROL_FD};
my $control;
if (defined $number) {
    open $control, '>&=', $number or die "control descriptor: $!\n";
}
else {
    open $control, '>', '/dev/null' or die "/dev/null: $!\n";
}
$control->autoflush;
sub say_to_disbatch { print {$control} encode_json({@_}), "\n" }

binmode STDOUT, ':encoding(UTF-8)';
say_to_disbatch(progress => { percent => 50, message => 'half of it' });
print "Hello $name\n";
say_to_disbatch(result => { greeted => $name });
