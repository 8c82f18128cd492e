#!/usr/bin/env perl
# @NAME@: greets params.name. It is started with --task FILE; its answer is the file with -response in its name.
use strict;
use warnings;

use Getopt::Long qw(:config pass_through);
use JSON::PP;

GetOptions('task=s' => \my $path) or die "wrong arguments\n";
open my $file, '<:raw', $path or die "$path: $!\n";
my $task = decode_json(do { local $/; <$file> });
my $name = $task->{params}{name} // 'world';

(my $answer = $path) =~ s/\.json\z/-response.json/;
open my $out, '>:raw', "$answer.new" or die "$answer.new: $!\n";
print {$out} encode_json({ status => 1, stdout => "Hello $name\n", stderr => undef });
close $out or die "$answer.new: $!\n";
rename "$answer.new", $answer or die "$answer: $!\n";
